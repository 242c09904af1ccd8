"""What a second look costs: reports, the page, a list of runs and logs, beside a build without a store.

python benchmarks/bench_store.py [--steps N] [--sessions N] [--calls N] [--than COMMIT]

Both builds read the same files, one after the other, each in a process of its own; this one a first time,
from the files alone, and a second one. The default is a tenth of the goals' sizes, as `--steps 10000000`
takes an hour. Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.bench_trace_report import trace_lines
from benchmarks.provenance import REPO, head
from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import RunEnd
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.phases import PhaseJoin
from flagscale_perf.training.window import IntervalWindow
from tests import rpc_sessions
from tests.fakes import MS, SCALE, make_header, make_phases, make_step

BEFORE = "e1cc0ee9"
STEPS_OF_AN_INTERVAL, STEPS_OF_A_SESSION = 10, 1000
NAME = "perf_records_{}.jsonl"
PEAK_MIB = 400


class Took(NamedTuple):
    """A process: seconds, seconds of a processor, MiB at most."""

    wall_s: float
    cpu_s: float
    peak_mib: float


class Case(NamedTuple):
    """What is asked of both builds, and the bars of this one's second time: as a share of the other's, and
    in seconds.
    """

    name: str
    words: Sequence[str]
    share: float
    bar_s: float


def write_run(path: Path, steps: int, start_s: int = 0) -> None:
    """A training with phases, an interval every ten steps, and its end."""
    header = make_header(perf_log_interval=STEPS_OF_AN_INTERVAL)
    header = replace(
        header,
        session_id=path.stem.removeprefix("perf_records_"),
        start_wall_ns=header.start_wall_ns + start_s * 10**9,
    )
    window = IntervalWindow(STEPS_OF_AN_INTERVAL, Anchor(header.start_wall_ns, header.start_mono_ns), SCALE)
    join, start_ns = PhaseJoin(RunFacts.of(header.facts)), 0
    with path.open("wb") as file:
        file.write(encode(header))
        for number in range(1, steps + 1):
            took_ns = (100 + number * 7919 % 11) * MS
            step = make_step(number, start_ns=start_ns, iteration_ns=took_ns, warmup=int(number == 1))
            phases = make_phases(number)
            join.hold(phases)
            interval = window.add(step, 0, join.take(step))
            file.write(encode(phases) + encode(step) + (b"" if interval is None else encode(interval)))
            start_ns += took_ns
        file.write(encode(RunEnd("completed", header.start_wall_ns + start_ns, 0, 0)))


def write_all(directory: Path, steps: int, sessions: int, calls: int) -> list[Case]:
    """The files, and what is asked of them."""
    run, runs, log, rpc = (directory / name for name in ("run", "runs", "log", "rpc"))
    for each in (run, runs, log, rpc):
        each.mkdir()
    write_run(run / NAME.format("20240129_103000"), steps)
    for number in range(sessions):
        session = f"20240129_{number // 3600:02}{number // 60 % 60:02}{number % 60:02}"
        (runs / str(number)).mkdir()
        write_run(runs / str(number) / NAME.format(session), STEPS_OF_A_SESSION, number)
    with (log / "worker-1.out").open("w") as file:
        for number in range(calls):
            file.write("\n".join(trace_lines(number)) + "\n")
    rpc_sessions.write_run(rpc, [rpc_sessions.make_call(number) for number in range(1, calls + 1)])
    lines = sum(1 for _ in (log / "worker-1.out").open())
    return [
        Case(f"report, {steps:,} steps", ["report", str(run), "--format", "text"], 0.03, 2),
        Case("its page", ["report", str(run), "--format", "html"], 1, 3),
        Case(f"runs, {sessions:,} sessions", ["runs", str(runs), "--format", "text"], 0.05, 1),
        Case(f"trace log, {lines:,} lines", ["report", str(log), "--format", "text"], 1, lines / 1e6),
        Case(f"calls, {calls:,}", ["report", str(rpc), "--format", "text"], 1, calls / 1e6),
    ]


def run(words: Sequence[str], build: Path, output: Path) -> Took:
    """One command of a build."""
    command = [sys.executable, "-m", "flagscale_perf", *words, "-o", str(output)]
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=build, env=os.environ | {"PYTHONPATH": str(build)}, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}")
    return Took(time.perf_counter() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def measure(case: Case, directory: Path, before: Path) -> bool:
    """Prints a row of the table; whether a bar is missed."""
    for found in directory.glob("*/cache"):
        shutil.rmtree(found)
    suffix = "html" if case.words[-1] == "html" else "txt"
    outputs = [directory / f"{number}.{suffix}" for number in range(3)]
    builds = (before, REPO, REPO)
    old, first, second = (run(case.words, *each) for each in zip(builds, outputs, strict=True))
    was, one, two = (output.read_bytes() for output in outputs)
    same = "NO" if one != two else "all three" if was == one else "both of this build"
    share, peak_mib = second.cpu_s / old.cpu_s, max(first.peak_mib, second.peak_mib)
    bars = f"{case.share:.2f}, {case.bar_s:.2g} s" if case.share < 1 else f"{case.bar_s:.2g} s"
    print(
        f"{case.name:26} {old.cpu_s:8.2f} {first.cpu_s:8.2f} {second.cpu_s:8.2f} {share:7.3f} {bars:>12}"
        f" {peak_mib:5.0f} {len(two) / 1e6:6.1f}  {same}",
        flush=True,
    )
    return second.cpu_s > case.bar_s or share > case.share or peak_mib > PEAK_MIB or one != two


def main() -> int:
    """Measures and prints; returns 1 where a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--calls", type=int, default=125_000)
    parser.add_argument("--than", default=BEFORE, help="commit of the other build (default: %(default)s)")
    args = parser.parse_args()
    print(head("store", "analysis", "training", "rpc", "trace"))
    print("n        1; seconds of a processor, start included; outputs are the same of which are named\n")
    git = ["git", "-C", str(REPO), "worktree"]
    with tempfile.TemporaryDirectory(prefix="bench_store_") as name:
        directory, before = Path(name), Path(name) / "before"
        os.environ["XDG_CACHE_HOME"] = str(directory / "home")
        subprocess.run([*git, "add", "--detach", str(before), args.than], check=True, capture_output=True)
        try:
            cases = write_all(directory, args.steps, args.sessions, args.calls)
            time.sleep(3)  # the times of a file that was only just written prove nothing
            print(
                f"{'':26} {args.than:>8} {'first':>8} {'second':>8} {'share':>7} {'bars':>12} {'MiB':>5}"
                f" {'MB out':>6}  same"
            )
            missed = [measure(case, directory, before) for case in cases]
        finally:
            subprocess.run([*git, "remove", "--force", str(before)], check=True, capture_output=True)
    return int(any(missed))


if __name__ == "__main__":
    sys.exit(main())
