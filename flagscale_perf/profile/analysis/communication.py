"""Collectives matched over the ranks, each split into waiting and transfer.

One rank's time in a collective is mostly waiting for the last rank to arrive. So an operation is split only
if all its ranks were recorded. Pure functions over the records of a run file; no torch.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from flagscale_perf.profile.analysis.source import Profile
from flagscale_perf.profile.operations import POINT_TO_POINT, Group, operation_of

CLOCK, SHORTEST = "clock", "shortest"
_OWN = ("phase", "module", "start_ns", "total_ns", "exposed_ns", "is_send")  # of a side, as recorded


@dataclass(frozen=True)
class RankCollectives:
    """The collectives that one rank recorded.

    Attributes:
        rank: its number in the job.
        clock: the same for ranks whose times are from one clock: one boot of one machine.
        place: fields of its `RankRecord`, names as text; None where they are not known.
        collectives: fields of each `CollectiveRecord`, names as text, None where they are not known.
    """

    rank: int
    clock: str
    place: Mapping[str, Any]
    collectives: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, profile: Profile) -> list[RankCollectives]:
        """Those of each rank of a profile."""
        return [cls(one.rank, one.clock, one.place, list(one.collectives.records())) for one in profile.ranks]


class Side(NamedTuple):
    """One rank's part in an operation. Its time is waiting, then the transfer, then a tail.

    Attributes:
        window, step: place among the rank's windows, and among the steps of this window, from 0.
        wait_ns: time until the last rank arrived. For a receive that waits for its sender this is the
            pipeline's bubble, for a send that waits for its receiver it is back-pressure.
        tail_ns: time after another rank had its result.
        exposed_ns: in which the rank did nothing else, from its call on: longer than `total_ns` where a busy
            library has executed the operation late. None where that is not known.
        exposed_wait_ns: the part of `exposed_ns` that is waiting.
        is_last: whether the rank arrived last.
    """

    rank: int
    window: int
    step: int
    phase: str
    module: str
    start_ns: int
    total_ns: int
    wait_ns: int | None
    tail_ns: int | None
    exposed_ns: int | None
    exposed_wait_ns: int | None
    is_send: int | None
    is_last: bool

    @property
    def waited_ns(self) -> int:
        """The part of the wait in which the rank did nothing else; all of it where that is not known."""
        return (self.wait_ns or 0) if self.exposed_wait_ns is None else self.exposed_wait_ns


@dataclass(frozen=True)
class Operation:
    """One collective, or one message.

    Attributes:
        group: text of its `Group`; label: "TP", "PP", "DP" ..., what the group is for.
        op: name of what was executed; operation: "all_reduce", "send_recv" ...
        size: ranks in the group.
        size_bytes: as nccl-tests counts them.
        sequence: its number in the group; None where the profiler has none.
        sides: each rank's part, by rank.
        transfer_ns: from the last rank's arrival to the first result; None where ranks are missing.
        split_by: "clock", or "shortest" where the ranks have several clocks: then the transfer is the
            shortest time that one of them has taken, as the last to come waits for no other; "": not split.
        late_ns: how much later the last rank arrived than the one before it; None where clocks differ.
    """

    group: str
    label: str
    op: str
    operation: str
    size: int | None
    size_bytes: int | None
    sequence: int | None
    sides: tuple[Side, ...]
    transfer_ns: int | None = None
    split_by: str = ""
    late_ns: int | None = None


class _Key(NamedTuple):
    """Identifies an operation on all its sides; `ends`: sender and receiver of a message."""

    group: str
    window: int
    op: str
    place: tuple[str, int | None]
    ends: tuple[int | None, int | None] | None


def operations_of(ranks: Sequence[RankCollectives]) -> list[Operation]:
    """All operations of these ranks, sorted by start time."""
    members = Members({each.rank: each.place for each in ranks})
    clocks = {each.rank: each.clock for each in ranks}
    found: dict[_Key, list[tuple[Side, Mapping[str, Any]]]] = defaultdict(list)
    for rank in ranks:
        for key, side, record in _sides(rank, members):
            found[key].append((side, record))
    made = [_operation(key, each, clocks) for key, each in found.items()]
    return sorted(made, key=lambda operation: min(side.start_ns for side in operation.sides))


def _sides(rank: RankCollectives, members: Members) -> Iterator[tuple[_Key, Side, Mapping[str, Any]]]:
    """Each operation of a rank, with the key that it shares with the other ranks' sides."""
    numbers = dict.fromkeys(record["window"] for record in rank.collectives)
    windows = {number: place for place, number in enumerate(numbers)}
    steps: dict[int, dict[Any, int]] = {}
    for record in rank.collectives:
        window = windows[record["window"]]
        step = steps.setdefault(window, {}).setdefault(record["step"], len(steps[window]))
        own = {name: record[name] for name in _OWN}
        unknown: dict[str, Any] = dict.fromkeys(("wait_ns", "tail_ns", "exposed_wait_ns"))
        side = Side(rank=rank.rank, window=window, step=step, **own, **unknown, is_last=False)
        yield _key(rank.rank, window, record, members), side, record


def _key(rank: int, window: int, record: Mapping[str, Any], members: Members) -> _Key:
    operation = operation_of(record["op"]) or operation_of(record["call"])
    group = members.group_of(rank, record["group"], operation in POINT_TO_POINT)
    if record["is_send"] is None:
        # a group's sequence goes on over windows
        sequence = record["sequence"]
        place = ("sequence", sequence) if sequence is not None else ("ordinal", record["ordinal"])
        return _Key(str(group), window if sequence is None else 0, operation, place, None)
    peer = members.peer_of(rank, group, record["peer"])
    ends = (rank, peer) if record["is_send"] else (peer, rank)
    return _Key(str(group), window, "send_recv", ("ordinal", record["ordinal"]), ends)


def _operation(
    key: _Key, parts: Sequence[tuple[Side, Mapping[str, Any]]], clocks: Mapping[int, str]
) -> Operation:
    sides, records = zip(*parts, strict=True)
    ranks = Group.parse(key.group).ranks
    size = next(iter(_known(records, "group_size")), None if ranks is None else len(ranks))
    made = Operation(
        group=key.group,
        label=label_of(key.group),
        op=records[0]["op"],
        operation=key.op,
        size=size,
        size_bytes=max(_known(records, "size_bytes"), default=None),
        sequence=key.place[1] if key.place[0] == "sequence" else None,
        sides=tuple(sorted(sides, key=lambda side: side.rank)),
    )
    wanted = 2 if key.ends is not None else size
    is_whole = len({side.rank for side in sides}) == len(sides) == wanted
    if not is_whole or len(sides) < 2:
        return made
    return _split(made, len({clocks[side.rank] for side in sides}) == 1)


def _known(records: Iterable[Mapping[str, Any]], field: str) -> list[int]:
    return [record[field] for record in records if record[field] is not None]


def _split(made: Operation, has_one_clock: bool) -> Operation:
    """The operation with waits and transfer: by who arrived last where its ranks are on one clock, else by
    the side that took the shortest time.
    """
    starts = [side.start_ns for side in made.sides]
    if has_one_clock:
        latest, ends = max(starts), [side.start_ns + side.total_ns for side in made.sides]
        # a sender that comes early may be done before its receiver comes: then the receiver tells
        transfer = max(0, (min(ends) if min(ends) > latest else max(ends)) - latest)
        waits = [min(latest - side.start_ns, side.total_ns) for side in made.sides]
        last, late_ns = starts.index(latest), latest - sorted(starts)[-2]
    else:
        transfer = min(side.total_ns for side in made.sides)
        waits, last, late_ns = [side.total_ns - transfer for side in made.sides], None, None
    sides = (
        _waited(side, wait_ns, transfer)._replace(is_last=place == last)
        for place, (side, wait_ns) in enumerate(zip(made.sides, waits, strict=True))
    )
    split_by = CLOCK if has_one_clock else SHORTEST
    return replace(made, sides=tuple(sides), transfer_ns=transfer, split_by=split_by, late_ns=late_ns)


def _waited(side: Side, wait_ns: int, transfer_ns: int) -> Side:
    tail_ns = max(0, side.total_ns - wait_ns - transfer_ns)
    # the thread works first and waits then: what is hidden of an operation is its beginning
    inside = None if side.exposed_ns is None else min(side.exposed_ns, side.total_ns)
    late = None if inside is None else max(0, inside - (side.total_ns - wait_ns))
    return side._replace(wait_ns=wait_ns, tail_ns=tail_ns, exposed_wait_ns=late)


# What a group is for, by what is in its name; the first that fits.
LABELS = [
    (re.compile(pattern, re.IGNORECASE), label)
    for pattern, label in (
        (r"tensor_and_data", "TP+DP"),
        (r"tensor_and_context", "TP+CP"),
        (r"expert_tensor", "ETP"),
        (r"expert_data|intra_expert|inter_expert", "EDP"),
        (r"expert|^(mesh_)?ep\b", "EP"),
        (r"tensor|^(mesh_)?tp\b", "TP"),
        (r"pipeline|^(mesh_)?pp\b", "PP"),
        (r"data_parallel|^(mesh_)?dp\b|distributed_optimizer", "DP"),
        (r"context|^(mesh_)?cp\b", "CP"),
        (r"embedding", "embedding"),
        (r"^model_parallel", "TP+PP"),
        (r"default_pg|world", "world"),
    )
]
_PLACES = ("tensor", "pipeline", "data")


def label_of(group: str) -> str:
    """A group's short name: "TP" for "TENSOR_MODEL_PARALLEL_GROUP 0-1"; its own if that does not tell."""
    name = Group.parse(group).name
    return next((label for pattern, label in LABELS if pattern.search(name)), name)


class Members:
    """The ranks of a job and their places in its parallel groups."""

    def __init__(self, places: Mapping[int, Mapping[str, Any]]) -> None:
        self._places = places

    def group_of(self, rank: int, text: str, is_point_to_point: bool) -> Group:
        """The group of a rank's operation. Where the profiler has none (vLLM's own operators, point-to-point
        over gloo), it is the rank's tensor- or pipeline-parallel group if it has one, else all ranks.
        """
        if text:
            return Group.parse(text)
        axis, label = ("pipeline", "pp") if is_point_to_point else ("tensor", "tp")
        place = self._places.get(rank, {})
        if (place.get(f"{axis}_size") or 1) > 1:
            return Group(label, self._alike(place, axis))
        world = place.get("world_size")
        return Group("world", tuple(range(world)) if world else None)

    def _alike(self, place: Mapping[str, Any], axis: str) -> tuple[int, ...] | None:
        """Ranks that differ in this coordinate alone; None unless all coordinates are known."""
        others = [name for name in _PLACES if name != axis]
        found = sorted(
            (other[axis], rank)
            for rank, other in self._places.items()
            if other.get(axis) is not None and all(other.get(name) == place.get(name) for name in others)
        )
        whole = [at for at, _ in found] == list(range(place[f"{axis}_size"]))
        return tuple(rank for _, rank in found) if whole else None

    @staticmethod
    def peer_of(rank: int, group: Group, peer: int | None) -> int | None:
        """The job rank of a group's rank; in a group of two, the other one."""
        if group.ranks is None:
            return None
        if peer is not None and peer < len(group.ranks):
            return group.ranks[peer]
        others = [each for each in group.ranks if each != rank]
        return others[0] if len(others) == 1 else None
