"""What the monitor takes of a step of Hugging Face's Trainer and of Lightning's, beside TraceML.

    python benchmarks/bench_trainers.py [--rounds N] [--runs N] [--traceml DIR]

Unmodified scripts, started as each monitor wants it: `python -m flagscale_perf.launch`, `traceml run`. The
model has next to nothing to do, so that a step is what the Trainer makes of it. In a run, the monitor is
switched on and off every few steps (benchmarks/peers/trainer_steps.py); each step counts by its difference to
the usual one of the steps nearest to it with the monitor off, in time of the training thread and of the
clock. Another run counts the calls of the monitor's own Python functions in a step, which no load of the
machine changes; off, they are what wraps the Trainer. TraceML is taken from DIR: pip install --no-deps
--target DIR traceml-ai==0.5.0. Exits 1 where the bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from benchmarks.peers.trainer_steps import CLOCKS, OFF, TIMED  # noqa: E402
from benchmarks.provenance import head  # noqa: E402
from flagscale_perf.spine.hot import PLAIN_VARIABLE  # noqa: E402

SCRIPT = ROOT / "benchmarks/peers/trainer_steps.py"
LIGHTNING = Path(sys.prefix) / "share/lightning"
HOSTS = ("transformers", "lightning")
BAR_US = 60.0
OURS = {
    "FLAGSCALE_PERF_ENABLE_MONITOR": "1",
    "FLAGSCALE_PERF_BREAKDOWN": "1",
    "FLAGSCALE_PERF_MAX_OVERHEAD": "100",
}
# Its launcher, which waits 15 seconds for its server, with patience for a machine that has other work.
TRACEML = (
    "import sys, traceml_ai.launcher.commands as c; c.DEFAULT_TCP_READY_TIMEOUT_SEC = 300.0;"
    "from traceml_ai.launcher.cli import main; sys.exit(main())"
)


def train(
    kind: str, host: str, rounds: int, traceml: Path | None, *calls: str
) -> list[tuple[str, list[int]]]:
    """The timed steps of one run, or their `calls`. `kind`: ours, ours in plain Python, or TraceML."""
    paths = [ROOT, LIGHTNING, *([traceml.resolve()] if traceml else [])]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environ["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    start = ["-c", TRACEML, "run", str(SCRIPT), "--args"]
    if kind != "TraceML":
        environ |= OURS | {PLAIN_VARIABLE: "1" if "plain" in kind else ""}
        start = ["-m", "flagscale_perf.launch", str(SCRIPT)]
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "steps.json"
        words = [sys.executable, *start, host, kind.split(",")[0], str(rounds), str(output), *calls]
        done = subprocess.run(words, cwd=scratch, env=environ, capture_output=True, text=True)
        if done.returncode or not output.exists():
            raise SystemExit(f"{kind}, {host} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        check(kind, Path(scratch))
        return [(arm, taken) for arm, taken in json.loads(output.read_text(encoding="utf-8"))]


def versions() -> str:
    """Of the Trainers' packages."""
    (lightning,) = metadata.distributions(name="lightning", path=[str(LIGHTNING)])
    return f"transformers {metadata.version('transformers')}, lightning {lightning.version}"


def check(kind: str, directory: Path) -> None:
    """That the run was recorded."""
    found = "logs/*/final_summary.json" if kind == "TraceML" else "logs/perf_monitor/perf_summary_*.json"
    if not list(directory.glob(found)):
        raise SystemExit(f"{kind} has recorded nothing")


def beyond_off_us(taken: Sequence[tuple[str, list[int]]], clock: int) -> dict[str, float]:
    """Arm -> the usual difference of its steps to the usual step nearest to them with the monitor off."""
    off = [(i, each[clock]) for i, (arm, each) in enumerate(taken) if arm == OFF]
    found: dict[str, list[float]] = defaultdict(list)
    for i, (arm, each) in enumerate(taken):
        nearest = sorted((pair for pair in off if pair[0] != i), key=lambda pair: abs(pair[0] - i))[
            : 2 * TIMED
        ]
        found[arm].append(each[clock] - statistics.median(ns for _, ns in nearest))
    return {arm: statistics.median(values) / 1e3 for arm, values in found.items()}


def calls_of(taken: Sequence[tuple[str, list[int]]]) -> dict[str, float]:
    """Arm -> what its usual step calls."""
    found: dict[str, list[int]] = defaultdict(list)
    for arm, (count,) in taken:
        found[arm].append(count)
    return {arm: statistics.median(counts) for arm, counts in found.items()}


def main() -> int:
    """Prints the table; 1 if the bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=100, help="of all arms in a run")
    parser.add_argument("--runs", type=int, default=3, help="of each monitor with each Trainer")
    parser.add_argument("--traceml", type=Path, help="where TraceML is installed")
    given = parser.parse_args()
    random.seed(0)
    print(head("spine", "training/recording", "hooks.py", "perf_metrics.py", "perf_logger.py", "hosts"))
    kinds = ["flagscale_perf", "flagscale_perf, plain Python", *(["TraceML"] if given.traceml else [])]
    print(f"with     torch {torch.__version__}, {versions()}")
    print(f"n        {given.runs} runs of each, {given.rounds * TIMED} timed steps of each arm in a run")
    missed: list[str] = []
    for host in HOSTS:
        found: dict[str, list[tuple[float, ...]]] = defaultdict(list)
        off_us: list[float] = []
        calls = {
            f"{kind}, {arm}": count
            for kind in kinds
            for arm, count in calls_of(train(kind, host, 2, given.traceml, "calls")).items()
        }
        for _ in range(given.runs):
            for kind in random.sample(kinds, len(kinds)):
                taken = train(kind, host, given.rounds, given.traceml)
                off_us += [each[0] / 1e3 for arm, each in taken if arm == OFF]
                by_clock = [beyond_off_us(taken, clock) for clock in range(len(CLOCKS))]
                for arm in by_clock[0]:
                    found[f"{kind}, {arm}"].append(tuple(each[arm] for each in by_clock))
        print(f"\n{host}: {statistics.median(off_us):.0f} us of the thread a step with the monitor off")
        missed += table(host, found, calls)
    print("\n" + "\n".join([f"bar      {BAR_US:g} us of the training thread", *missed]), flush=True)
    return 1 if missed else 0


def table(host: str, found: dict[str, list[tuple[float, ...]]], calls: dict[str, float]) -> list[str]:
    """Prints a line for each arm; returns one for each of ours that misses the bar."""
    missed = []
    print(f"{'us a step beyond that':46} {'thread':>7} {'clock':>7} {'calls':>6}  thread, run by run")
    for arm, runs in sorted(found.items()):
        thread, _, clock = (statistics.median(each) for each in zip(*runs, strict=True))
        each = ", ".join(f"{run[0]:.0f}" for run in runs)
        print(f"{arm:46} {thread:7.0f} {clock:7.0f} {calls[arm]:6.0f}  {each}", flush=True)
        if arm.startswith("flagscale_perf") and thread > BAR_US:
            missed.append(f"missed   {host}: {arm}: {thread:.0f}, bar {BAR_US:g}")
    return missed


if __name__ == "__main__":
    sys.exit(main())
