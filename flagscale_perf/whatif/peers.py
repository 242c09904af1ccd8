"""The ranks of an arrangement, and what the others of a stage take for the same part of a step."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import numpy.typing as npt

from flagscale_perf.whatif.graph import Lane
from flagscale_perf.whatif.replay import Arrangement, Times


def places(found: Arrangement) -> Iterator[tuple[Lane, int, int]]:
    """Of each rank its lane, its place in it, and its number."""
    for lane in found.graph.parts:
        for place, replica in enumerate(found.members[lane.column]):
            yield lane, place, found.ranks[lane.stage][replica]


def rows_of(found: Arrangement, lane: Lane, phase: int) -> tuple[int, ...]:
    """The parts of a lane's steps in that phase, in turn."""
    return tuple(at for at, part in enumerate(found.graph.parts[lane]) if part.phase == phase)


def usual(
    found: Arrangement,
    lane: Lane,
    ranks: Collection[int],
    phase: int,
    steps: npt.NDArray[np.intp] | slice = slice(None),
) -> Times | None:
    """Of the ranks of a lane's stage but these, the median time for each of its parts of the phase, by turn
    and step. None where there are no others, or one of them has fewer such parts.
    """
    count, beside = len(rows_of(found, lane, phase)), []
    for other, members in ((each, found.members[each.column]) for each in found.graph.parts):
        own = [place for place, at in enumerate(members) if found.ranks[lane.stage][at] not in ranks]
        if other.stage == lane.stage and own:
            rows = rows_of(found, other, phase)[:count]
            beside.append(found.durs_ns[other][np.ix_(rows, own)][:, :, steps])
    if not beside or min(map(len, beside)) < count:
        return None
    usual_ns: Times = np.median(np.concatenate(beside, axis=1), axis=1).astype(np.int64)
    return usual_ns
