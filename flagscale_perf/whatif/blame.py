"""The critical path of a recorded step: what it was made of, by rank and phase, from its end to its begin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from flagscale_perf.analysis.replays import WAITS, Entry, Layout, PathTimes
from flagscale_perf.whatif.graph import Lane, Node
from flagscale_perf.whatif.replay import Replay, Times

_Place = tuple[Node, int]  # a part, and which of its lane's replicas


def paths_of(layout: Layout, replay: Replay) -> Iterator[tuple[int, PathTimes]]:
    """Of each step that is sound its iteration and its path."""
    ends = replay.ends(replay.lags_ns)
    for step, iteration in enumerate(replay.arrangement.iterations):
        if replay.is_sound[step]:
            yield iteration, PathTimes(1, layout.stages, _on_path(replay, ends, step), _own(replay, step))


def _on_path(replay: Replay, ends: Mapping[Lane, Times], step: int) -> Counter[Entry]:
    """From the last rank's end back to when the last rank began: where a part waits for another rank longer
    than for its own, the path goes on there.
    """
    found = replay.arrangement
    on_ns = Counter[Entry]()
    begin_ns = max(int(own[:, step].max()) for own in found.begin_ns.values())
    last = max(ends, key=lambda lane: int(ends[lane][-1, :, step].max()))
    at: _Place = Node(last, len(ends[last]) - 1), int(ends[last][-1, :, step].argmax())
    time_ns = int(ends[last][-1, :, step].max())
    while time_ns > begin_ns:
        node, replica = at
        before, until_ns = _before(replay, ends, at, step)
        part = found.graph.parts[node.lane][node.at]
        is_own = part.kind not in WAITS and (before is None or before[0].lane == node.lane)
        rank = found.ranks[node.lane.stage][found.members[node.lane.column][replica]]
        until_ns = max(until_ns, begin_ns)
        if time_ns != until_ns:
            on_ns[rank if is_own else None, part.phase] += time_ns - until_ns
        if before is None:
            break
        at, time_ns = before, until_ns
    return on_ns


def _before(replay: Replay, ends: Mapping[Lane, Times], at: _Place, step: int) -> tuple[_Place | None, int]:
    """What a part waited for the longest and when that ended: where it is as late, its rank's part before."""
    (node, replica), found = at, replay.arrangement
    if node.at == 0:
        return None, int(found.begin_ns[node.lane][replica, step])
    best: _Place = Node(node.lane, node.at - 1), replica
    until_ns = int(ends[node.lane][node.at - 1, replica, step])
    for edge in found.graph.edges.get(node, ()):
        end_ns = int(ends[edge.after.lane][edge.after.at, replica, step])
        holds = not edge.is_room or replay.rooms[node, edge.after][replica, step]
        if holds and end_ns > until_ns:
            best, until_ns = (edge.after, replica), end_ns
    number = replay.meeting(node)
    for group in replay.groups[number] if number is not None else ():
        if node.lane in group.holds and group.holds[node.lane][replica, step]:
            own = group.of[node.lane][replica]
            for lane in group.lanes:
                before = Node(lane, found.graph.meetings[number or 0].places[lane] - 1)
                came = np.where(group.of[lane] == own, ends[lane][before.at, :, step], 0)
                if (end_ns := int(came.max())) > until_ns:
                    best, until_ns = (before, int(came.argmax())), end_ns
    return best, until_ns


def _own(replay: Replay, step: int) -> Counter[Entry]:
    """What each rank does except waiting."""
    found, own_ns = replay.arrangement, Counter[Entry]()
    for lane, parts in found.graph.parts.items():
        for phase in {part.phase for part in parts if part.kind not in WAITS}:
            rows = [at for at, part in enumerate(parts) if part.phase == phase and part.kind not in WAITS]
            sums = found.durs_ns[lane][rows, :, step].sum(axis=0)
            for replica, dur_ns in zip(found.members[lane.column], sums.tolist(), strict=True):
                own_ns[found.ranks[lane.stage][replica], phase] += dur_ns
    return own_ns
