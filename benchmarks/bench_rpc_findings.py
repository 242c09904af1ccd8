"""What findings of calls say that a change would save, beside what it saves: the split model of
examples/tee_gpu, run with and without each change, in rounds that take turns.

python benchmarks/bench_rpc_findings.py [--rounds N] [--tokens N]

`measured` is the time of the calls without the server's own and the caller's other work, before less after:
the median of the rounds, and the least and the most of them. `holds` says in how many rounds the interval of
the finding, widened by a fifth of it, held the median. A round whose report says no figure has none here.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from flagscale_perf.analysis.run_file import find_run_file
from flagscale_perf.cli.instruments import load_records
from flagscale_perf.rpc.analysis.report import CallsReport, read_calls
from flagscale_perf.rpc.stages import ALL_STAGES

REPO = Path(__file__).resolve().parents[1]
PROGRAMS = REPO / "examples" / "tee_gpu"
BEFORE = ("--payload", "frames")
SLACK = 0.2
NS_PER_MS = 1e6


class Change(NamedTuple):
    """A finding, and what it advises: the options of the runner, and the type on both sides."""

    finding: str
    options: tuple[str, ...]
    dtype: str = "float32"


CHANGES = (
    Change("shared_memory", ("--payload", "shared")),
    Change("repeated_kv", (*BEFORE, "--no-repeat-kv")),
    Change("unfused_attention", (*BEFORE, "--stage", "fused_attention")),
    Change("half_precision", BEFORE, "bfloat16"),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=512)
    args = parser.parse_args()
    load_records()
    print(f"machine    {os.uname().machine}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before")
    print(f"n          {args.rounds} rounds of {args.tokens} tokens")
    said: dict[str, list[tuple[float, float]]] = {each.finding: [] for each in CHANGES}
    saved: dict[str, list[float]] = {each.finding: [] for each in CHANGES}
    with tempfile.TemporaryDirectory(prefix="bench_rpc_findings_") as path, servers(Path(path)) as endpoints:
        for _ in range(args.rounds):
            before = run(Path(path), endpoints["float32"], BEFORE, args.tokens)
            for change in CHANGES:
                after = run(Path(path), endpoints[change.dtype], change.options, args.tokens)
                saved[change.finding].append(carrying_ms(before) - carrying_ms(after))
                said[change.finding] += predicted(before, change.finding)
    print_table(said, saved)
    return 0


@contextmanager
def servers(directory: Path) -> Iterator[dict[str, str]]:
    """The endpoints of a server of each type."""
    started, endpoints = [], {}
    try:
        for dtype in dict.fromkeys(change.dtype for change in CHANGES):
            endpoint = endpoints[dtype] = f"ipc://{directory}/{dtype}.ipc"
            command = [sys.executable, str(PROGRAMS / "server_optimized.py"), "--ipc-path", endpoint]
            environment = os.environ | {"LLAMA_DTYPE": dtype}
            started.append(
                subprocess.Popen(command, cwd=directory, env=environment, stdout=subprocess.DEVNULL)
            )
        yield endpoints
    finally:
        for server in started:
            server.terminate()
            server.wait()


def run(directory: Path, endpoint: str, options: tuple[str, ...], tokens: int) -> CallsReport:
    """One prefill, recorded."""
    with tempfile.TemporaryDirectory(dir=directory) as path:
        command = [
            sys.executable,
            str(PROGRAMS / "tee_runner_optimized.py"),
            "--ipc-path",
            endpoint,
            *options,
        ]
        subprocess.run([*command, "--tokens", str(tokens)], cwd=path, check=True, stdout=subprocess.DEVNULL)
        return read_calls(find_run_file(Path(path) / "logs" / "rpc"))


def carrying_ms(report: CallsReport) -> float:
    """Of all calls, without what the methods and the caller did beside them."""
    spent = zip(ALL_STAGES, report.overall.stages_ns, strict=True)
    return sum(took_ns for stage, took_ns in spent if stage.name not in ("server", "other")) / NS_PER_MS


def predicted(report: CallsReport, name: str) -> list[tuple[float, float]]:
    """The finding's interval; none where it says no figure."""
    found = [one for one in report.findings if one.name == name and one.cost_s is not None]
    return [
        (1e3 * (one.cost_s if one.least_s is None else one.least_s), 1e3 * one.cost_s)
        for one in found
        if one.cost_s is not None
    ]


def print_table(said: dict[str, list[tuple[float, float]]], saved: dict[str, list[float]]) -> None:
    print("\nms saved           predicted (median ends)   measured (least, most)        holds")
    for name, took in saved.items():
        middle = statistics.median(took)
        intervals = said[name]
        held = sum(least * (1 - SLACK) <= middle <= most * (1 + SLACK) for least, most in intervals)
        ends = [statistics.median(end) for end in zip(*intervals, strict=True)]
        told = f"{ends[0]:8.1f} to {ends[1]:8.1f}" if ends else "none"
        measured = f"{middle:8.1f} ({min(took):.1f}, {max(took):.1f})"
        print(f"{name:<18} {told:<25} {measured:<29} {held} of {len(intervals)}; {len(took)} rounds")


if __name__ == "__main__":
    sys.exit(main())
