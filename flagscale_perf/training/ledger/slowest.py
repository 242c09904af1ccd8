"""Finds what made the slowest steps of a ledger slow: the row that was longer, and the rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from flagscale_perf.spine.averages import median
from flagscale_perf.training.ledger.book import Book, Lateness, Unit, filled
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.sample import Step

MOST = 10
SLOW = 1.2  # times a usual step


@dataclass(frozen=True)
class SlowestStep:
    """A step that took longer than usual, and where most of that went.

    Attributes:
        step_ns, beyond_ns: what it took, and how much of that is more than usual.
        ranks: of the unit that was late; none where all ranks took longer.
        phase: in which most of it went.
        part_ns: so much of it.
    """

    iteration: int
    step_ns: int
    beyond_ns: int
    ranks: Unit
    phase: str
    part_ns: int


def slowest_of(
    book: Book, lateness: Lateness, common: Sequence[Step], times_ns: Sequence[int]
) -> list[SlowestStep]:
    """The steps that took at least `SLOW` usual ones, the longest first. `times_ns`: each step's duration."""
    usual_ns = int(median(times_ns))
    order = sorted(range(len(times_ns)), key=lambda at: -times_ns[at])[:MOST]
    slow = [at for at in order if times_ns[at] > SLOW * usual_ns]
    if not slow:
        return []
    columns = list(_columns(book, lateness, common))
    found = []
    for at in slow:
        ranks, phase, part_ns = max(
            ((ranks, phase, column.get(at, 0) - middle) for ranks, phase, column, middle in columns),
            key=lambda one: one[2],
        )
        iteration, beyond_ns = book.steps[at].iteration, times_ns[at] - usual_ns
        found.append(SlowestStep(iteration, times_ns[at], beyond_ns, ranks, PHASES[phase], int(part_ns)))
    return found


def _columns(
    book: Book, lateness: Lateness, common: Sequence[Step]
) -> Iterator[tuple[Unit, int, Mapping[int, int], float]]:
    """Everything that a step is made of: ranks, phase, its time in each step, and the usual one."""
    steps = len(book.steps)
    for (unit, phase), gain_ns in lateness.gain_ns.items():
        is_usual = 2 * len(gain_ns) >= steps
        yield book.units[unit], phase, gain_ns, median(filled(gain_ns, steps)) if is_usual else 0
    for phase in range(len(PHASES)):
        taken = {at: (step.phases_ns or ())[phase] or 0 for at, step in enumerate(common)}
        if any(taken.values()):
            yield (), phase, taken, median(taken.values())
