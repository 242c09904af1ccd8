"""What makes recorded steps as long as they are: their critical paths, in one pass from end to begin."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from flagscale_perf.analysis.replays import WAITS, Blamed, Cause, Entry, Kind, Layout, PathTimes
from flagscale_perf.whatif.graph import Lane, Node
from flagscale_perf.whatif.peers import rows_of, usual
from flagscale_perf.whatif.replay import Flags, Replay, Times

_Flags = dict[Lane, Flags]  # like durations: parts, replicas, steps
Indices = tuple[npt.NDArray[np.intp], ...]


def paths_of(layout: Layout, replay: Replay) -> Iterator[tuple[int, PathTimes]]:
    """Of each step that is sound its iteration and its path."""
    causes_ns = {key: each.tolist() for key, each in _blamed(replay).items()}
    own_ns = {key: np.rint(each).astype(np.int64).tolist() for key, each in _own(replay).items()}
    for step, iteration in enumerate(replay.arrangement.iterations):
        if replay.is_sound[step] and iteration >= layout.since:
            by_cause = Counter({key: ns for key, each in causes_ns.items() if (ns := each[step])})
            own = Counter({key: ns for key, each in own_ns.items() if (ns := each[step])})
            yield iteration, PathTimes(1, layout.stages, by_cause, own)


class _Path:
    """The critical path of each step: where a part waits for another rank longer than for its own, it goes on
    there; where both are as late, with its own.

    Attributes:
        on: by lane, the parts that are on it.
        lets: of these the parts that wait, and another rank is what lets them go on.
        ends: when each part ends.
    """

    def __init__(self, replay: Replay) -> None:
        self._replay, self.ends = replay, replay.ends(replay.lags_ns)
        self.on: _Flags = {lane: np.zeros(ends.shape, bool) for lane, ends in self.ends.items()}
        self.lets: _Flags = {lane: np.zeros(ends.shape, bool) for lane, ends in self.ends.items()}
        self._last = {number: replay.arrived(number, self.ends) for number in range(len(replay.groups))}
        self._wanted = {
            number: [np.zeros(own.shape, bool) for own in last] for number, last in self._last.items()
        }
        graph = replay.arrangement.graph
        end_ns = np.max([ends[-1].max(axis=0) for ends in self.ends.values()], axis=0)
        self._take({lane: (len(ends) - 1, ends[-1] == end_ns) for lane, ends in self.ends.items()})
        until = {lane: len(parts) for lane, parts in graph.parts.items()}
        for each in reversed(graph.order):
            if isinstance(each, Node):
                self._segment(each, until[each.lane])
                until[each.lane] = each.at
            else:
                self._meeting(each)

    def _take(self, last: Mapping[Lane, tuple[int, Flags]]) -> None:
        """In each step the first replica of these parts, of those that are flagged."""
        taken = np.zeros(len(self._replay.arrangement.iterations), bool)
        for lane, (at, flags) in last.items():
            self.on[lane][at] |= flags & ~taken & (flags.cumsum(axis=0) == 1)
            taken |= flags.any(axis=0)

    def _segment(self, head: Node, until: int) -> None:
        """Parts that follow one another, the first of which waits."""
        own = self.on[head.lane][head.at : until]
        own[:] = np.logical_or.accumulate(own[::-1], axis=0)[::-1]
        left = own[0].copy()
        if not head.at or not left.any():
            return
        ends, number = self.ends, self._replay.meeting(head)
        last = [] if number is None else self._last[number]
        ready = self._replay.ready(head, ends, last)
        here = left & (ends[head.lane][head.at - 1] == ready)
        self.on[head.lane][head.at - 1] |= here
        left &= ~here
        self.lets[head.lane][head.at] = left
        for edge in self._replay.arrangement.graph.edges.get(head, ()):
            came = left & (ends[edge.after.lane][edge.after.at] == ready)
            self.on[edge.after.lane][edge.after.at] |= came
            left = left & ~came
        if number is not None:
            for group, wanted in zip(self._replay.groups[number], self._wanted[number], strict=True):
                if head.lane in group.holds:
                    np.logical_or.at(wanted, group.of[head.lane], left & group.holds[head.lane])

    def _meeting(self, number: int) -> None:
        """Goes on with the first of those that came last, where a part waited for one of them."""
        one = self._replay.arrangement.graph.meetings[number]
        groups = zip(self._replay.groups[number], self._last[number], self._wanted[number], strict=True)
        for group, last, wanted in groups:
            for lane in group.lanes if wanted.any() else ():
                at = one.places[lane] - 1
                for replica, of in enumerate(group.of[lane]):
                    came = wanted[of] & (self.ends[lane][at, replica] == last[of])
                    self.on[lane][at, replica] |= came
                    wanted[of] &= ~came


def _blamed(replay: Replay) -> dict[Blamed, Times]:
    """What the path is made of, by step: from when the last rank began on."""
    found, path = replay.arrangement, _Path(replay)
    begin_ns = np.max([own.max(axis=0) for own in found.begin_ns.values()], axis=0)
    blamed: dict[Blamed, Times] = defaultdict(lambda: np.zeros(len(found.iterations), np.int64))
    for lane, parts in found.graph.parts.items():
        of = np.nonzero(path.on[lane].any(axis=0))  # the replicas and steps with parts on it
        on = path.on[lane][:, of[0], of[1]]
        lags_ns, ends_ns = (each[lane][:, of[0], of[1]] for each in (replay.lags_ns, path.ends))
        on_ns = np.where(on, np.minimum(lags_ns, ends_ns - begin_ns[of[1]]).clip(0), 0)
        for phase in {parts[at].phase for at in np.flatnonzero(on_ns.any(axis=1))}:
            rows = [*rows_of(found, lane, phase)]
            shared = _shared(replay, lane, (rows, of), path.lets[lane])
            np.add.at(blamed[None, phase, Cause.TRANSFER], of[1], (on_ns[rows] * shared).sum(axis=0))
            own_ns = on_ns[rows] * ~shared
            for place in np.unique(of[0][own_ns.any(axis=0)]).tolist():
                rank = found.ranks[lane.stage][found.members[lane.column][place]]
                own, steps = own_ns[:, of[0] == place], of[1][of[0] == place]
                if parts[rows[0]].kind in WAITS:
                    blamed[rank, phase, Cause.WAITS][steps] += own.sum(axis=0)
                    continue
                usual_ns = usual(found, lane, {rank}, phase, steps)
                longer_ns = 0 if usual_ns is None else (own - usual_ns).clip(0).sum(axis=0)
                blamed[rank, phase, Cause.LONGER][steps] += longer_ns
                blamed[rank, phase, Cause.USUAL][steps] += own.sum(axis=0) - longer_ns
    return blamed


def _shared(replay: Replay, lane: Lane, those: tuple[Sequence[int], Indices], lets: Flags) -> Flags:
    """Of parts, in these replicas and steps, where their time is a message's, or a collective's once all have
    come.
    """
    rows, of = those
    shared: Flags = lets[:, of[0], of[1]][rows]
    for place, at in enumerate(rows):
        number = replay.meeting(Node(lane, at))
        for group in replay.groups[number] if number is not None else ():
            if lane in group.holds:
                shared[place] |= group.holds[lane][of]
        shared[place] |= replay.arrangement.graph.parts[lane][at].kind is Kind.MESSAGE
    return shared


def _own(replay: Replay) -> dict[Entry, Times]:
    """By step, what each rank does except waiting; and of messages and collectives a mean rank's."""
    found, own_ns = replay.arrangement, dict[Entry, Times]()
    count = sum(map(len, found.ranks))
    for lane, parts in found.graph.parts.items():
        ranks = [found.ranks[lane.stage][replica] for replica in found.members[lane.column]]
        for phase in {part.phase for part in parts}:
            rows = [*rows_of(found, lane, phase)]
            sums_ns = replay.lags_ns[lane][rows].sum(axis=0)
            if parts[rows[0]].kind in WAITS:
                own_ns[None, phase] = own_ns.get((None, phase), 0) + sums_ns.sum(axis=0) / count
            else:
                own_ns |= {(rank, phase): each for rank, each in zip(ranks, sums_ns, strict=True)}
    return own_ns
