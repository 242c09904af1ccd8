"""Recorded steps put through their graph once more.

A part that works lasts as long as it was recorded. One that waits ends so much later than the last that it
waits for as it was recorded to: that is the transfer, and how long it waits follows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flagscale_perf.analysis.replays import WAITS, Layout
from flagscale_perf.whatif.graph import Graph, Lane, Meeting, Node

Times = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

SAME_MOMENT_SHARE, SAME_MOMENT_OF_WAIT = 0.5, 0.05  # of the spread of arrivals; of the shortest wait
SAME_MOMENT_NS = 300_000  # what hosts' clocks and schedulers make of one moment
NEVER = np.iinfo(np.int64).min // 4


class Arrangement(NamedTuple):
    """Steps in which the same replicas do the same parts.

    Attributes:
        graph: of these.
        members: of each column, the places of its replicas among all.
        ranks: of each stage, by those places.
        iterations: of the steps.
        durs_ns: by lane: an array of parts, the lane's replicas, and steps.
        begin_ns: by lane: replicas and steps.
    """

    graph: Graph
    members: Sequence[Sequence[int]]
    ranks: Sequence[Sequence[int]]
    iterations: Sequence[int]
    durs_ns: Mapping[Lane, Times]
    begin_ns: Mapping[Lane, Times]

    def since(self, iteration: int) -> Flags:
        """Which of the steps are that one, or come after it."""
        found: Flags = np.array(self.iterations) >= iteration
        return found


class Group(NamedTuple):
    """Ranks that leave a meeting together, all at once or in several groups: columns of a table of places.

    Attributes:
        lanes: those that are in it.
        of: for each of these, to which group each of its replicas belongs.
        many: how many groups.
        holds: by lane, in which steps a replica and its group left at one moment.
        way: of the ways in which ranks may meet, which one.
        leaving: those that leave with it, where others of them have left before; () for all.
    """

    lanes: Sequence[Lane]
    of: Mapping[Lane, npt.NDArray[np.intp]]
    many: int
    holds: dict[Lane, Flags]
    way: int = 0
    leaving: Sequence[Lane] = ()

    def last(self, arrivals: Mapping[Lane, Times], steps: int) -> Times:
        """When the last one of each group has come, by group and step."""
        found = np.full((self.many, steps), NEVER, np.int64)
        for lane in self.lanes:
            np.maximum.at(found, self.of[lane], arrivals[lane])
        return found


class Simulation:
    """Steps of one arrangement, whose parts wait for one another as its graph says.

    Attributes:
        arrangement: these.
        groups: of each meeting, who leaves it together.
        rooms: of a sender's wait for its receiver, by replica and step whether there is one.
    """

    def __init__(self, arrangement: Arrangement) -> None:
        self.arrangement = arrangement
        self.groups: list[list[Group]] = []
        self.rooms: dict[tuple[Node, Node], Flags] = {}
        self._steps = len(arrangement.iterations)
        self._met = {
            Node(lane, at): number
            for number, one in enumerate(arrangement.graph.meetings)
            for lane, at in one.places.items()
        }

    def end(self, lags_ns: Mapping[Lane, Times]) -> Times:
        """By step, when the last rank is through."""
        ends: Times = np.max([own[-1].max(axis=0) for own in self.ends(lags_ns).values()], axis=0)
        return ends

    def ends(self, lags_ns: Mapping[Lane, Times]) -> dict[Lane, Times]:
        """When every part ends with these lags."""
        graph, begin = self.arrangement.graph, self.arrangement.begin_ns
        heads: dict[Lane, list[int]] = {lane: [] for lane in graph.parts}
        for each in graph.order:
            if isinstance(each, Node):
                heads[each.lane].append(each.at)
        until = {
            Node(lane, at): after
            for lane, own in heads.items()
            for at, after in zip(own, [*own[1:], len(graph.parts[lane])], strict=True)
        }
        ends = {lane: np.empty_like(lags) for lane, lags in lags_ns.items()}
        arrived: dict[int, list[Times]] = {}
        for each in graph.order:
            if isinstance(each, int):
                arrived[each] = self.arrived(each, ends)
                continue
            lane, at = each
            ready = self.ready(each, ends, arrived.get(self._met.get(each, -1), ())) if at else begin[lane]
            for row in range(at, until[each]):  # few rows at a time: `cumsum` down an axis takes far longer
                ready = np.add(ready, lags_ns[lane][row], out=ends[lane][row])
        return ends

    def ready(self, node: Node, ends: Mapping[Lane, Times], arrived: Sequence[Times]) -> Times:
        """When all that a part waits for is there, by replica and step. `arrived`: the last of each group of
        its meeting.
        """
        ready: Times = ends[node.lane][node.at - 1]
        for edge in self.arrangement.graph.edges.get(node, ()):
            after = ends[edge.after.lane][edge.after.at]
            if edge.is_room:
                after = np.where(self.rooms[node, edge.after], after, NEVER)
            ready = np.maximum(ready, after)
        if arrived:
            for group, last in zip(self.groups[self._met[node]], arrived, strict=True):
                if node.lane in group.holds:
                    others = np.where(group.holds[node.lane], last[group.of[node.lane]], NEVER)
                    ready = np.maximum(ready, others)
        return ready

    def meeting(self, node: Node) -> int | None:
        """The number of the meeting that this part is; None if it is none."""
        return self._met.get(node)

    def arrived(self, number: int, ends: Mapping[Lane, Times]) -> list[Times]:
        """When the last one of each group of that meeting has come, by group and step."""
        own = self._arrivals(self.arrangement.graph.meetings[number], ends)
        return [group.last(own, self._steps) for group in self.groups[number]]

    @staticmethod
    def _arrivals(one: Meeting, ends: Mapping[Lane, Times]) -> dict[Lane, Times]:
        return {lane: ends[lane][at - 1] for lane, at in one.places.items()}


class Replay(Simulation):
    """Steps as they were recorded.

    Attributes:
        lags_ns: like the durations: of a part that waits, how much later it ends than what it waits for.
        is_sound: by step, whether no part ends before what it waits for.
        end_ns: by step, when the last rank is through.
    """

    def __init__(self, layout: Layout, arrangement: Arrangement, doubt_ns: Times) -> None:
        """`doubt_ns`: by step, by how much clocks of machines may be off."""
        super().__init__(arrangement)
        self.lags_ns = {lane: durs_ns.copy() for lane, durs_ns in arrangement.durs_ns.items()}
        recorded = {
            lane: arrangement.begin_ns[lane] + durs_ns.cumsum(axis=0)
            for lane, durs_ns in self.lags_ns.items()
        }
        graph = arrangement.graph
        self.groups = [self._groups(layout, one, recorded) for one in graph.meetings]
        self.rooms = {
            (node, edge.after): recorded[edge.after.lane][edge.after.at] <= recorded[node.lane][node.at]
            for node, edges in graph.edges.items()
            for edge in edges
            if edge.is_room
        }
        self.end_ns = np.max([ends[-1].max(axis=0) for ends in recorded.values()], axis=0)
        self.is_sound = np.ones(self._steps, bool)
        for node in {*graph.edges, *self._met}:
            number = self._met.get(node)
            last = [] if number is None else self.arrived(number, recorded)
            ready = self.ready(node, recorded, last)
            lag = recorded[node.lane][node.at] - ready
            self.lags_ns[node.lane][node.at] = lag
            self.is_sound &= (lag >= -SAME_MOMENT_NS - doubt_ns).all(axis=0)

    @cached_property
    def residual_ns(self) -> Times:
        """By how much each step gets longer where every message and collective takes what those of its name
        usually take on its stage.
        """
        usual: dict[tuple[int, str], list[Times]] = defaultdict(list)
        rows = [
            (lane, at, (lane.stage, part.name))
            for lane, parts in self.arrangement.graph.parts.items()
            for at, part in enumerate(parts)
            if part.kind in WAITS
        ]
        for lane, at, key in rows:
            usual[key].append(self.lags_ns[lane][at].ravel())
        medians = {key: int(np.median(np.concatenate(own))) for key, own in usual.items()}
        changed = {lane: own.copy() for lane, own in self.lags_ns.items()}
        for lane, at, key in rows:
            changed[lane][at] = medians[key]
        longer_ns: Times = self.end(changed) - self.end_ns
        return longer_ns

    def _groups(self, layout: Layout, one: Meeting, recorded: Mapping[Lane, Times]) -> list[Group]:
        """Of the ways in which ranks may meet, for each rank and step the first one whose ranks were recorded
        to leave at one moment.
        """
        taken = {lane: np.zeros(recorded[lane].shape[1:], bool) for lane in one.places}
        arrivals, found = self._arrivals(one, recorded), []
        leaves = {lane: recorded[lane][at] for lane, at in one.places.items()}
        for way, group in enumerate(groups_of(layout, one, self.arrangement)):
            holds = _is_one_moment(group, arrivals, leaves, self._steps)
            for lane in group.leaving or group.lanes:
                group.holds[lane] = holds[group.of[lane]] & ~taken[lane]
                taken[lane] |= group.holds[lane]
            if any(flags.any() for flags in group.holds.values()):
                found.append(group._replace(way=way))
        return found


def groups_of(layout: Layout, one: Meeting, arrangement: Arrangement) -> Iterator[Group]:
    """The ways in which the ranks of a meeting may be divided into groups, the largest groups first."""
    count, width = sum(map(len, arrangement.members)), layout.tensor_parallel
    places = {
        lane: np.array(arrangement.members[lane.column], np.intp)
        for lane in arrangement.graph.parts
        if _may_meet(layout, one, lane)
    }
    if not one.places.keys() >= places.keys():
        return
    lanes = [*places]
    if one.name != layout.embeddings:
        yield Group(lanes, {lane: at * 0 for lane, at in places.items()}, 1, {})
    if one.name in (layout.agreement, layout.embeddings):
        yield Group(lanes, places, count, {})
        if one.name == layout.agreement and count > 1:
            yield from _averaging(lanes, places, count, len(arrangement.ranks) - 1)
    elif width > 1:
        yield Group(lanes, {lane: at % width for lane, at in places.items()}, width, {})
        yield Group(lanes, {lane: at // width for lane, at in places.items()}, -(-count // width), {})


def _averaging(
    lanes: Sequence[Lane], places: Mapping[Lane, npt.NDArray[np.intp]], count: int, last_stage: int
) -> Iterator[Group]:
    """Behind the agreement the last stage averages the loss over replicas, which no mark of its own tells."""
    last = [lane for lane in lanes if lane.stage == last_stage]
    if 0 < len(last) < len(lanes):
        yield Group(lanes, places, count, {}, leaving=[lane for lane in lanes if lane not in last])
        yield Group(lanes, {lane: at * 0 for lane, at in places.items()}, 1, {}, leaving=last)


def _may_meet(layout: Layout, one: Meeting, lane: Lane) -> bool:
    """All ranks agree, or those of one replica; its first and its last stage share embeddings."""
    if one.name == layout.embeddings:
        return lane.stage in (0, max(layout.stages.values()))
    return one.name == layout.agreement or lane.stage == next(iter(one.places)).stage


def _is_one_moment(
    group: Group, arrivals: Mapping[Lane, Times], leaves: Mapping[Lane, Times], steps: int
) -> Flags:
    """By group and step, whether its waits end together, and none of them before the last has begun."""
    first, last, least, most, shortest = (
        np.full((group.many, steps), bound, np.int64) for bound in (-NEVER, NEVER, -NEVER, NEVER, -NEVER)
    )
    for lane in group.lanes:
        of = group.of[lane]
        np.minimum.at(first, of, arrivals[lane])
        np.maximum.at(last, of, arrivals[lane])
    for lane in group.leaving or group.lanes:
        of = group.of[lane]
        np.minimum.at(least, of, leaves[lane])
        np.maximum.at(most, of, leaves[lane])
        np.minimum.at(shortest, of, leaves[lane] - arrivals[lane])
    spread = SAME_MOMENT_SHARE * (last - first)
    limit = np.maximum(np.maximum(spread, SAME_MOMENT_OF_WAIT * shortest), SAME_MOMENT_NS)
    holds: Flags = (most - least <= limit) & (least >= last - SAME_MOMENT_NS)
    return holds
