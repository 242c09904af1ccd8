"""What a step costs when nothing of the monitor is in the caches, as in a real training.

    python benchmarks/bench_cold_caches.py [--steps 150]

The loop of `bench_hot_path.py`, with and without a pass over more memory than the caches hold before every
step: what a model does to them. The difference to the same loop without the monitor is what it takes of the
step; `self` is what its records say of themselves. No bar: the figure is the machine's as much as ours.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.bench_hot_path import PLAIN, Arm, has_extension, in_plain_python, loop
from benchmarks.provenance import head
from flagscale_perf.training.records import MarksRecord, StepRecord

EVICTED_BYTES = 96 << 20  # read and written before a step; several times a last-level cache
ROUNDS = 4
PAIRS = {"flagscale_perf": ("on", "none"), "flagscale_perf with phases": ("phases", "timers")}
PLAIN_PAIRS = {label + PLAIN: (on + PLAIN, base) for label, (on, base) in PAIRS.items()}


class Cost(NamedTuple):
    """Median microseconds of a step, and of them what the monitor says it has taken."""

    step: float
    own: float


def run(arm: Arm, steps: int, memory: Any) -> Cost:
    """`steps` steps of the arm, after a pass over `memory` each."""
    times: list[int] = []
    own_ns: list[int] = []
    if arm.hooks.active:
        monitor = arm.hooks._monitor
        emit = monitor._emit

        def keep(record: StepRecord | MarksRecord) -> None:
            if isinstance(record, StepRecord):
                own_ns.append(record.self_ns or 0)
            emit(record)

        monitor._emit = keep
    for _ in range(steps):
        if memory is not None:
            memory += 1
        start_ns = time.perf_counter_ns()
        arm.step()
        times.append(time.perf_counter_ns() - start_ns)
    if arm.hooks.active:
        monitor._emit = emit
    return Cost(statistics.median(times) / 1e3, statistics.median(own_ns or [0]) / 1e3)


def main() -> None:
    """Prints a line for each comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=150, help="of each arm in each round")
    steps = parser.parse_args().steps
    memory = np.zeros(EVICTED_BYTES // 8)
    print(head("spine", "training/recording", "hooks.py", "perf_metrics.py", "perf_logger.py"))
    print(
        f"n        {ROUNDS} rounds of {steps} steps an arm; {EVICTED_BYTES >> 20} MiB written before a "
        "cold step"
    )
    print(f"{'us a step, least of the rounds':42} {'caches':>8} {'added':>8} {'self':>8}")
    with tempfile.TemporaryDirectory() as scratch:
        pairs = PAIRS | PLAIN_PAIRS if has_extension() else PAIRS
        arms = {name: _make(Path(scratch), name) for pair in pairs.values() for name in pair}
        for caches, evicted in (("warm", None), ("cold", memory)):
            rounds = [{name: run(arm, steps, evicted) for name, arm in arms.items()} for _ in range(ROUNDS)]
            for label, (on, base) in pairs.items():
                added = min(each[on].step - each[base].step for each in rounds)
                own = min(each[on].own for each in rounds)
                print(f"{label:42} {caches:>8} {added:8.1f} {own:8.1f}")
        for arm in arms.values():
            arm.close()


def _make(scratch: Path, name: str) -> Arm:
    directory, kind = scratch / name, name.removesuffix(PLAIN)
    directory.mkdir(exist_ok=True)

    def maker(directory: Path) -> Arm:
        has_timers = kind in ("timers", "phases")
        return loop(directory, "none" if kind == "timers" else kind, timers=has_timers)

    return in_plain_python(maker)(directory) if PLAIN in name else maker(directory)


if __name__ == "__main__":
    main()
