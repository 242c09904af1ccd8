"""A phase that comes to take longer in a run while the rest of the step does not: gradually, or at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flagscale_perf.spine.averages import mean, median
from flagscale_perf.spine.chance import (
    PARTS,
    RISE,
    edges_of_parts,
    ends_of_line,
    medians_of_parts,
    rise_of,
)
from flagscale_perf.spine.limits import Limit

FEWEST = 3  # parts on either side of a place from which on a phase takes longer
# One step cannot move the median of three. A slower machine asks for more steps (`findings/slower.py`): there
# nothing is compared with other ranks or phases of the same step.
FEWEST_STEPS = 3 * PARTS
LEVELS = Limit(
    0.5,
    "times",
    "ours: of a line's distance from sixteen medians; two levels have to be so much nearer to say more",
)


class Growth(NamedTuple):
    """A phase that grew while the rest of the step did not.

    Attributes:
        phase: it.
        first_ns, last_ns: of a line through the medians of sixteen parts of the run, at the first and the
            last of them; of two levels, these.
        mean_ns: above its beginning, in the mean of all steps.
        since: from which of the steps, counted from 0, the second level is; None where it grew gradually.
    """

    phase: str
    first_ns: float
    last_ns: float
    mean_ns: float
    since: int | None = None


def growth_of(phase: str, column: Sequence[int], rest: Sequence[int]) -> Growth | None:
    """How a phase grew, from its time and the rest of each step; None for chance, or if the rest grew."""
    if len(column) < FEWEST_STEPS:
        return None
    mine, others = medians_of_parts(column), medians_of_parts(rest)
    levels, line = _two_levels(mine), _line(mine)
    at_once = levels is not None and levels.distance < LEVELS.value * line.distance
    if not at_once and rise_of(mine) < RISE.value:
        return None
    shape = levels if at_once and levels is not None else line
    before, after = _ends(others, shape.split)
    grown = shape.last - shape.first
    in_proportion = shape.first * after / max(1.0, before)
    if shape.last - in_proportion < grown / 2 or grown < abs(after - before):
        return None
    if shape.split:
        since = _since(column, shape.split)
        return Growth(phase, shape.first, shape.last, grown * (len(column) - since) / len(column), since)
    at_first_step = shape.first - grown / (PARTS - 1) / 2
    return Growth(phase, shape.first, shape.last, mean(mine) - max(0.0, at_first_step))


class _Shape(NamedTuple):
    """The shape fitted to a column: a line, or two levels with a split between them."""

    first: float
    last: float
    distance: float  # of the parts from it, summed
    split: int = 0  # parts on the first level


def _line(parts: Sequence[float]) -> _Shape:
    first, last = ends_of_line(parts)
    slope = (last - first) / (len(parts) - 1)
    return _Shape(first, last, sum(abs(part - first - slope * at) for at, part in enumerate(parts)))


def _two_levels(parts: Sequence[float]) -> _Shape | None:
    """The nearest ones of which the second lies wholly above the first; None where no two do."""
    found = []
    for split in range(FEWEST, len(parts) - FEWEST + 1):
        low, high = parts[:split], parts[split:]
        if max(low) < min(high):
            first, last = median(low), median(high)
            distance = sum(abs(part - first) for part in low) + sum(abs(part - last) for part in high)
            found.append(_Shape(first, last, distance, split))
    return min(found, key=lambda shape: shape.distance, default=None)


def _ends(parts: Sequence[float], split: int) -> tuple[float, float]:
    if split:
        return median(parts[:split]), median(parts[split:])
    return ends_of_line(parts)


def _since(column: Sequence[int], split: int) -> int:
    """The step at which the second level begins, looked for in the parts around the split: the one that
    leaves the fewest steps on the wrong side of the middle between both levels.
    """
    edges = edges_of_parts(len(column))
    low, high = median(column[: edges[split]]), median(column[edges[split] :])
    middle = (low + high) / 2
    first, end = edges[split - 1], edges[split + 1]
    wrong = sum(value <= middle for value in column[first:end])  # were all of them on the second level
    fewest, since = wrong, first
    for place in range(first, end):
        wrong += 1 if column[place] > middle else -1
        if wrong < fewest:
            fewest, since = wrong, place + 1
    return since
