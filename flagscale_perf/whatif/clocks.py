"""The clocks of several machines within a step, by its own messages: none ends before it began.

The messages between two machines bound how their clocks lie to one another, from both sides. The middle is
taken: what it is wrong by, messages one way seem to take longer and those the other way shorter. Where there
are none, both left an exchange of gradients at one moment, as in the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from flagscale_perf.analysis.replays import Layout, NotKnownError
from flagscale_perf.whatif.graph import Lane
from flagscale_perf.whatif.replay import Arrangement, Times, groups_of

_NEVER = np.iinfo(np.int64).max // 4


def aligned(layout: Layout, found: Arrangement) -> tuple[Arrangement, Times]:
    """The steps on one clock, and by how much that may be wrong, by step. Raises NotKnownError where neither
    messages both ways nor exchanges of gradients tell.
    """
    steps = len(found.iterations)
    names = sorted({*layout.clocks.values()})
    offsets = np.zeros((len(names), steps), np.int64)
    doubts = np.zeros_like(offsets)
    if len(names) == 1:
        return found, doubts[0]
    numbers = {name: number for number, name in enumerate(names)}
    machines = {
        lane: np.array(
            [numbers[layout.clocks[found.ranks[lane.stage][at]]] for at in found.members[lane.column]]
        )
        for lane in found.graph.parts
    }
    left, reached = {*range(1, len(names))}, [0]
    relations = _relations(layout, found, machines, len(names))
    for known in reached:
        for number in sorted(left):
            if (relation := relations.get((known, number))) is not None:
                left.remove(number)
                reached.append(number)
                offsets[number], doubts[number] = offsets[known] + relation[0], doubts[known] + relation[1]
    if left:
        others = ", ".join(names[number] for number in sorted(left))
        raise NotKnownError(f"no messages both ways tell the clock of {others} from that of {names[0]}")
    begin_ns = {lane: own + offsets[machines[lane]] for lane, own in found.begin_ns.items()}
    return found._replace(begin_ns=begin_ns), doubts.max(axis=0)


def _relations(
    layout: Layout, found: Arrangement, machines: Mapping[Lane, Times], count: int
) -> dict[tuple[int, int], tuple[Times, Times]]:
    """By two machines what brings the clock of the second onto that of the first, and by how much that may be
    wrong, by step. Messages that contradict one another tell nothing.
    """
    ends = {lane: found.begin_ns[lane] + durs.cumsum(axis=0) for lane, durs in found.durs_ns.items()}
    relations: dict[tuple[int, int], tuple[Times, Times]] = {}
    for leaves in _leaves(layout, found, machines, ends, count):
        met = np.flatnonzero((leaves < _NEVER).all(axis=1)).tolist()
        relations |= {
            (one, other): (leaves[one] - leaves[other], leaves[one] * 0)
            for one in met
            for other in met
            if one != other
        }
    least = _least(found, machines, ends, count)
    for one, other in np.argwhere((least < _NEVER).all(axis=2)).tolist():
        both = least[one, other] + least[other, one]
        if (least[other, one] < _NEVER).all() and (both >= 0).all():
            relations[one, other] = (least[other, one] - least[one, other]) // 2, (both + 1) // 2
    return relations


def _least(
    found: Arrangement, machines: Mapping[Lane, Times], ends: Mapping[Lane, Times], count: int
) -> Times:
    """By machine where messages began, machine where they ended, and step: the least that one took by these
    two clocks.
    """
    least = np.full((count, count, len(found.iterations)), _NEVER, np.int64)
    for node, edges in found.graph.edges.items():
        for edge in edges:
            there, here = machines[edge.after.lane], machines[node.lane]
            if not edge.is_room and (there != here).any():
                took = ends[node.lane][node.at] - ends[edge.after.lane][edge.after.at]
                np.minimum.at(least, (there, here), took)
    return least


def _leaves(
    layout: Layout,
    found: Arrangement,
    machines: Mapping[Lane, Times],
    ends: Mapping[Lane, Times],
    count: int,
) -> Iterator[Times]:
    """By machine and step when ranks left an exchange of gradients, for each group of them."""
    for one in found.graph.meetings:
        ways = [*groups_of(layout, one, found)] if one.name in layout.strict else []
        for group in ways[1:2] or ways[:1]:  # ranks of one tensor parallel place, where there are several
            leaves = np.full((group.many, count, len(found.iterations)), _NEVER, np.int64)
            for lane in group.lanes:
                np.minimum.at(leaves, (group.of[lane], machines[lane]), ends[lane][one.places[lane]])
            yield from leaves
