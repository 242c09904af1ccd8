"""What calls waited that their bytes do not explain, where wait, server and transport are one figure.

Bytes cost a call at most what the fastest call with as many bytes, or more, took for everything. What a call
takes beyond that is the server's, or the network's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flagscale_perf.rpc.analysis.costs import SMALL_BYTES, Size
from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.spine.clock import NS_PER_MS

AWAKE_NS = 10 * NS_PER_MS  # waking up takes less, also of a process beside one that is always busy
APART_NS = NS_PER_MS  # three in four calls are slower than others of their bytes by more: not by chance
_QUARTER = 0.25
_STALLS = 2  # so many long waits among a method's fast calls, or a method's only call, are no habit of it


class Peer(NamedTuple):
    """Fast calls of a method.

    Attributes:
        method: their name.
        wait_ns: of one, its lower quartile.
    """

    method: str
    wait_ns: int


class Unexplained(NamedTuple):
    """Of some calls.

    Attributes:
        methods_ns: by method, what bytes do not explain; only of methods that have any.
        bytes_ns: what the bytes of large calls may have cost at most.
        peer: method and wait of the fast calls that the dearest method was held against; None where there are
            none of as few bytes.
    """

    methods_ns: dict[str, float]
    bytes_ns: float
    peer: Peer | None

    @property
    def dearest(self) -> str:
        """The method with most of it."""
        return max(self.methods_ns, key=self.methods_ns.__getitem__, default="")


class _Group(NamedTuple):
    method: str
    size: Size
    waits_ns: list[int]

    @property
    def low_ns(self) -> int:
        return self.waits_ns[round(_QUARTER * (len(self.waits_ns) - 1))]

    @property
    def is_small(self) -> bool:
        return sum(self.size) <= SMALL_BYTES

    def floor_ns(self, fastest: _Group) -> int:
        """What its bytes cost a call at most. `fastest`: as `_fastest_beside` finds it."""
        return fastest.low_ns if not self.is_small or fastest.low_ns <= AWAKE_NS else 0

    def over_ns(self, floor_ns: int) -> list[int]:
        """What waits are beyond that, of those that are by more than chance or waking up."""
        beyond_ns = APART_NS if self.low_ns - floor_ns > APART_NS else AWAKE_NS
        return [wait - floor_ns for wait in self.waits_ns if wait - floor_ns > beyond_ns]


def unexplained(calls: Sequence[CallRecord]) -> Unexplained:
    """Of these calls, by their methods and sizes."""
    groups = _groups_of(calls)
    overs_ns: dict[str, list[int]] = {}
    peers: dict[str, Peer | None] = {}
    bytes_ns, small_ns = 0.0, min((each.low_ns for each in groups if each.is_small), default=0)
    for group in groups:
        fastest = _fastest_beside(group, groups)
        floor_ns = group.floor_ns(fastest)
        if over := group.over_ns(floor_ns):
            overs_ns.setdefault(group.method, []).extend(over)
            peers[group.method] = Peer(fastest.method, fastest.low_ns) if floor_ns else None
        if not group.is_small:
            base_ns = min(small_ns, floor_ns)
            bytes_ns += sum(min(wait, floor_ns) - base_ns for wait in group.waits_ns if wait > base_ns)
    found = Unexplained(_lasting(calls, overs_ns), bytes_ns, None)
    return found._replace(peer=peers.get(found.dearest))


def _lasting(calls: Sequence[CallRecord], overs_ns: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """The sums of the methods whose long waits are more than a stall or two of the machine."""
    made = Counter(call.method for call in calls)
    return {
        name: float(sum(over))
        for name, over in overs_ns.items()
        if len(over) > _STALLS or 1 < len(over) == made[name]
    }


def _groups_of(calls: Sequence[CallRecord]) -> list[_Group]:
    waits: dict[tuple[str, Size], list[int]] = {}
    for call in calls:
        key = call.method, (call.sent_bytes, call.received_bytes)
        waits.setdefault(key, []).append((call.wait_ns or 0) + call.receive_ns)
    return [_Group(method, size, sorted(found)) for (method, size), found in waits.items()]


def _fastest_beside(group: _Group, groups: Sequence[_Group]) -> _Group:
    """The fastest whose bytes bound those of this one."""
    return min((each for each in groups if _bounds(each, group)), key=lambda each: each.low_ns)


def _bounds(one: _Group, other: _Group) -> bool:
    """Whether a call of `one` shows what the bytes of `other` cost at most."""
    if other.is_small and one.is_small:
        return True
    return one.size[0] >= other.size[0] and one.size[1] >= other.size[1]
