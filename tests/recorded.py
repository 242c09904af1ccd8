"""Real FlagScale runs as noise: what each phase of rank 0 took in each step, in microseconds, with delays
planted by computation.

Recorded from FlagScale 0.8.0 on two CPU cores (the tiny GPT of `tests.processes.flagscale`, 300 steps of some
70 ms, on one rank and on two) while five to ten other processes wanted the same two cores: the worst noise.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from flagscale_perf.analysis.rules import Finding
from flagscale_perf.spine.records import RUNNING, RunHeader
from flagscale_perf.store.run_file import Reading
from flagscale_perf.training.analysis.findings.findings import RULES
from flagscale_perf.training.analysis.fold import RunFold
from tests.fakes import make_facts, make_header, make_phases, make_step

RUNS = ("one_rank", "two_ranks")
NS_PER_US = 1000
EVERY = 17
BURSTS = {start + step for start in (60, 101, 133, 201, 258) for step in range(6)}
NAMELESS = {rule.name for rule in RULES if not rule.names_cause}
PATTERNS: dict[str, Callable[[int], float]] = {
    "constant": lambda step: 1.0,
    "periodic": lambda step: float(step % EVERY == 5),
    "bursts": lambda step: float(step in BURSTS),
    "growing": lambda step: step / 300,
}


@cache
def noise(run: str) -> list[dict[str, int]]:
    """Nanoseconds of each phase in each step but the first."""
    with (Path(__file__).parent / "recorded_noise" / f"{run}.csv").open() as file:
        return [
            {f"{name}_ns": int(text) * NS_PER_US for name, text in row.items()}
            for row in csv.DictReader(file)
        ]


@dataclass(frozen=True)
class Planted:
    """What was found after so much was planted.

    Attributes:
        named: findings that name a cause, the costliest first.
        true_gain: of removing what was planted, in settled steps.
    """

    named: list[Finding]
    true_gain: float


def plant(run: str, phase: str, pattern: str, size_ns: float) -> Planted:
    """The recorded run with a phase longer by `size_ns` where the pattern says so."""
    fold = RunFold(_header(run))
    start_ns, added = 0, dict[int, tuple[int, int]]()
    for number, row in enumerate(noise(run), start=2):
        more_ns = int(size_ns * PATTERNS[pattern](number)) if size_ns else 0
        times = row | ({f"{phase}_ns": row[f"{phase}_ns"] + more_ns} if more_ns else {})
        iteration_ns = sum(times.values())
        step = make_step(
            number,
            start_ns=start_ns,
            iteration_ns=iteration_ns,
            train_step_ns=iteration_ns,
            device_ns=None,
            memory_bytes=None,
            memory_peak_bytes=None,
            memory_reserved_bytes=None,
            microbatches=2,
        )
        start_ns += iteration_ns
        added[number] = more_ns, iteration_ns
        fold.add(make_phases(number, **times))
        fold.add(step)
    report = fold.report(Reading("here", {}, 0, []), RUNNING)
    named = [finding for finding in report.findings if finding.name not in NAMELESS]
    settled = [pair for number, pair in added.items() if number >= (report.settled.first_iteration or 0)]
    planted_ns, whole_ns = map(sum, zip(*settled, strict=True))
    return Planted(named, planted_ns / (whole_ns - planted_ns))


@cache
def _header(run: str) -> RunHeader:
    ranks = 2 if run == "two_ranks" else 1
    facts = {
        "device": "CPU (rehearsal)",
        "rehearsal": True,
        "world_size": ranks,
        "data_parallel": ranks,
        "seq_length": 64,
        "micro_batch_size": 2,
        "global_batch_size": 4,
        "peak_flop_per_s": None,
        "device_memory_bytes": None,
    }
    return make_header(facts=make_facts(**facts))


def usual_step_ns(run: str) -> float:
    """Of the recorded run, the median."""
    return statistics.median(sum(row.values()) for row in noise(run))


def finding_of(planted: Planted, phase: str, pattern: str) -> Finding | None:
    """The one that names this phase and pattern."""
    return next((each for each in planted.named if (each.phase, each.pattern) == (phase, pattern)), None)
