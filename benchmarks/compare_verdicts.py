"""How often `flagscale-perf compare --fail-if-slower` says what is not so, on simulated runs whose truth is
known, whether what it says is needed is enough, whether its intervals hold the truth, and what it says of
runs that become slower within themselves.

python benchmarks/compare_verdicts.py [PAIRS]

Steps remember each other, a few are half as long again, and runs differ as a whole (`tests/simulated.py`).
Each line is so many pairs of sides, seeded: the same figures every time. A quarter of an hour for 1000 pairs.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import head
from flagscale_perf.analysis.compare.compare import (
    MEDIAN,
    NOT_SLOWER,
    STATISTICS,
    CompareOptions,
    Gate,
    Stretch,
    Terms,
)
from flagscale_perf.analysis.compare.driver import Compared, Units
from flagscale_perf.analysis.compare.gate import gate
from flagscale_perf.analysis.compare.judge import SLOWER, UNDECIDED, Judge, Row
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.averages import median
from tests.simulated import Process, simulate

STEPS, LIMIT, NOISE, MOST = 60, 0.03, 0.01, 2048
TRUTHS = (-LIMIT, 0.0, LIMIT, 2 * LIMIT)
USUAL = Process()
QUIET = Process(step_noise=0.015, run_noise=0.003)
WIDE = Process(step_noise=0.2, run_noise=0.3)  # runs of one configuration differ by tens of percent
KINDS = (("usual", USUAL), ("quiet", QUIET), ("wide", WIDE))
LATER, SHIFTED_STEPS = 0.2, 120  # NEW is slower by that share from the middle of so many steps on


def judged(seed: int, process: Process, runs: int, slower: float, statistic: str) -> tuple[Gate, Row]:
    """The gate's answer for one pair of sides whose NEW is slower by that share, and the change."""
    sides = [
        [simulate(seed_of(seed, side, number), STEPS, process, backward=more) for number in range(runs)]
        for side, more in enumerate((0.0, slower))
    ]
    times = [[step.iteration_ns / 1e6 for step in run] for side in sides for run in side]
    judge = Judge(times, runs, NOISE, STATISTICS[statistic])
    whole = judge.whole()
    return gate(whole, LIMIT, lambda distance: judge.needed(distance, MOST)), whole


def seed_of(pair: int, side: int, number: int) -> int:
    """Of one run; no other has it."""
    return 1_000 * pair + 500 * side + number


def rates(pairs: int) -> Iterator[str]:
    """A line for each kind of runs, number of runs a side, statistic and truth."""
    for label, process in KINDS:
        for statistic, runs in ((MEDIAN, 1), (MEDIAN, 3), ("mean", 1), ("mean", 3)):
            if process is WIDE and runs == 1:  # one run shows nothing of such noise
                continue
            for truth in TRUTHS:
                each = [judged(seed, process, runs, truth, statistic) for seed in range(pairs)]
                found = Counter(answer.outcome for answer, _ in each)
                held = sum((row.share_low or 0.0) <= truth <= (row.share_high or 0.0) for _, row in each)
                lowest = min(row.share_low or 0.0 for _, row in each)
                shares = "".join(
                    f"{100 * found[name] / pairs:11.1f} %" for name in (SLOWER, NOT_SLOWER, UNDECIDED)
                )
                ends = f"{100 * held / pairs:8.1f} %{100 * lowest:+9.1f} %"
                yield f"{label:7}{statistic:8}{runs:5}{100 * truth:+8.0f} %{shares}{ends}"


def enough(pairs: int) -> Iterator[str]:
    """Of undecided pairs of one run a side of the same code: how often the runs it asks for decide."""
    for label, process in (("usual", USUAL), ("quiet", QUIET)):
        found = [(seed, judged(seed, process, 1, 0.0, MEDIAN)[0].needed) for seed in range(pairs)]
        wanted = [(seed, needed.runs) for seed, needed in found if needed is not None and needed.runs]
        later = [judged(pairs + seed, process, runs, 0.0, MEDIAN)[0].outcome for seed, runs in wanted]
        yield (
            f"{label}: of {pairs} pairs of the same code {len(wanted)} are undecided and ask for"
            f" {median([runs for _, runs in wanted]):g} runs a side on median;"
            f" {sum(outcome != UNDECIDED for outcome in later)} of {len(later)} are then decided"
        )


def shifted(pairs: int) -> Iterator[str]:
    """Of pairs of one run a side, NEW slower from the middle on or not at all: how often a change is located,
    and what is said of the stretches before and after it.
    """
    for label, process in (("usual", USUAL), ("quiet", QUIET)):
        for later in (0.0, LATER):
            found = [_stretches(seed, process, later) for seed in range(pairs)]
            apart = [stretches for stretches in found if stretches]
            before = sum(first.whole.verdict != UNDECIDED for first, *_ in apart)
            after = sum(last.whole.verdict == SLOWER for *_, last in apart)
            held = sum(
                (last.whole.share_low or 0) <= later <= (last.whole.share_high or 0) for *_, last in apart
            )
            yield (
                f"{label}: +{later:.0%} from the middle on: {len(apart)} of {pairs} pairs are judged apart,"
                f" {before} differ before it, {after} are slower after it, where {held} intervals hold it"
            )


def _stretches(seed: int, process: Process, later: float) -> Sequence[Stretch]:
    rows = [
        [step.iteration_ns / 1e6 for step in simulate(seed_of(seed, side, 0), SHIFTED_STEPS, process)]
        for side in (0, 1)
    ]
    middle = SHIFTED_STEPS // 2
    rows[1][middle:] = [time * (1 + later) for time in rows[1][middle:]]
    base, new = (Units(Session([], logs=[Path(str(side))]), row, {}, {}, {}) for side, row in enumerate(rows))
    terms = Terms("iteration", MOST, {}, noise=NOISE)
    return Compared([base], [new], terms, CompareOptions()).stretches


def main() -> None:
    """Prints all tables."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(head("analysis/compare"))
    print(
        f"limit {LIMIT:.0%}, {STEPS} steps a run, {pairs} pairs a line; one run a side: --noise {NOISE:.0%}"
    )
    outcomes = f"{SLOWER:>13}{NOT_SLOWER:>13}{UNDECIDED:>13}"
    print(f"{'runs':7}{'judged':8}{'a side':>6}{'truth':>9}{outcomes}{'holds':>10}{'lowest':>11}")
    for line in rates(pairs):
        print(line, flush=True)
    for line in (*enough(max(20, pairs // 10)), *shifted(pairs)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
