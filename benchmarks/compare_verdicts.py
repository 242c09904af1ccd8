"""How often `flagscale-perf compare --fail-if-slower` says what is not so, on simulated runs whose truth is
known, and whether what it says is needed is enough.

python benchmarks/compare_verdicts.py [PAIRS]

Steps remember each other, a few are half as long again, and runs differ as a whole (`tests/simulated.py`).
Each line is so many pairs of sides, seeded: the same figures every time. Ten minutes for 1000 pairs.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import head
from flagscale_perf.analysis.compare.bootstrap import median
from flagscale_perf.analysis.compare.compare import (
    MEDIAN,
    NOT_SLOWER,
    STATISTICS,
    Gate,
    gate,
)
from flagscale_perf.analysis.compare.judge import SLOWER, UNDECIDED, Judge
from tests.simulated import Process, simulate

STEPS, LIMIT, NOISE, MOST = 60, 0.03, 0.01, 2048
TRUTHS = (-LIMIT, 0.0, LIMIT, 2 * LIMIT)
USUAL = Process()
QUIET = Process(step_noise=0.015, run_noise=0.003)


def judged(seed: int, process: Process, runs: int, slower: float, statistic: str) -> Gate:
    """The gate's answer for one pair of sides whose NEW is slower by that share."""
    sides = [
        [simulate(seed_of(seed, side, number), STEPS, process, backward=more) for number in range(runs)]
        for side, more in enumerate((0.0, slower))
    ]
    times = [[step.iteration_ns / 1e6 for step in run] for side in sides for run in side]
    judge = Judge(times, runs, NOISE, STATISTICS[statistic])
    return gate(judge.whole(), LIMIT, lambda distance: judge.needed(distance, MOST))


def seed_of(pair: int, side: int, number: int) -> int:
    """Of one run; no other has it."""
    return 1_000 * pair + 500 * side + number


def rates(pairs: int) -> Iterator[str]:
    """A line for each kind of runs, number of runs a side, statistic and truth."""
    for label, process in (("usual", USUAL), ("quiet", QUIET)):
        for statistic, runs in ((MEDIAN, 1), (MEDIAN, 3), ("mean", 1), ("mean", 3)):
            for truth in TRUTHS:
                found = Counter(
                    judged(seed, process, runs, truth, statistic).outcome for seed in range(pairs)
                )
                shares = "".join(
                    f"{100 * found[name] / pairs:11.1f} %" for name in (SLOWER, NOT_SLOWER, UNDECIDED)
                )
                yield f"{label:7}{statistic:8}{runs:5}{100 * truth:+8.0f} %{shares}"


def enough(pairs: int) -> Iterator[str]:
    """Of undecided pairs of one run a side of the same code: how often the runs it asks for decide."""
    for label, process in (("usual", USUAL), ("quiet", QUIET)):
        found = [(seed, judged(seed, process, 1, 0.0, MEDIAN).needed) for seed in range(pairs)]
        wanted = [(seed, needed.runs) for seed, needed in found if needed is not None and needed.runs]
        later = [judged(pairs + seed, process, runs, 0.0, MEDIAN).outcome for seed, runs in wanted]
        yield (
            f"{label}: of {pairs} pairs of the same code {len(wanted)} are undecided and ask for"
            f" {median([runs for _, runs in wanted]):g} runs a side on median;"
            f" {sum(outcome != UNDECIDED for outcome in later)} of {len(later)} are then decided"
        )


def main() -> None:
    """Prints both tables."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(head("analysis/compare"))
    print(
        f"limit {LIMIT:.0%}, {STEPS} steps a run, {pairs} pairs a line; one run a side: --noise {NOISE:.0%}"
    )
    print(f"{'runs':7}{'judged':8}{'a side':>6}{'truth':>9}{SLOWER:>13}{NOT_SLOWER:>13}{UNDECIDED:>13}")
    for line in rates(pairs):
        print(line, flush=True)
    for line in enough(max(20, pairs // 10)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
