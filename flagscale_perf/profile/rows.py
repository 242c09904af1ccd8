"""The rows of one step: the time of each operator of each module, adding up to the step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from flagscale_perf.profile.attribution import DISPATCHES, NODE, Attribution, Part
from flagscale_perf.profile.calls import StepCalls
from flagscale_perf.profile.events import NOTHING, Bools, Events, Ints
from flagscale_perf.profile.pieces import Pieces
from flagscale_perf.profile.records import Sort

_SORTS = len(Sort)
_LABELS = tuple(part.label for part in Part)


class Key(NamedTuple):
    """The key of a row; the fields are those of a `RowRecord`.

    Attributes:
        phase: label of a `Part`.
        module: path of it, "" outside of any.
        sort: a `Sort`.
        op: name, "" for Python and engine.
    """

    phase: str
    module: str
    sort: int
    op: str


@dataclass
class Row:
    """The sums of a row, as in `RowRecord`."""

    runs: int = 0
    self_ns: int = 0
    total_ns: int = 0
    device_ns: int | None = None
    steps: int = 1

    def add(self, other: Row) -> None:
        """Adds the same row of another step."""
        self.runs += other.runs
        self.self_ns += other.self_ns
        self.total_ns += other.total_ns
        if other.device_ns is not None:
            self.device_ns = (self.device_ns or 0) + other.device_ns
        self.steps += other.steps


@dataclass(frozen=True)
class StepRows:
    """One step's rows, and its parts, which do not overlap.

    Attributes:
        rows: by what they are of.
        parts_ns: by the names in `records.PARTS`, without the residual.
        device_busy_ns: None without a device.
        events: that it was made of.
        calls: each run of an operator that is in the rows; None for those of no step.
    """

    rows: dict[Key, Row] = field(default_factory=dict)
    parts_ns: Mapping[str, int] = field(default_factory=dict)
    device_busy_ns: int | None = None
    events: int = 0
    calls: StepCalls | None = None

    @property
    def booked_ns(self) -> int:
        """The time that the rows account for."""
        return sum(self.parts_ns.values())


def rows_of(events: Events, places: Attribution, pieces: Pieces) -> StepRows:
    """The rows of a step that is cut into these pieces."""
    grouped = _Grouped(events, places)
    sums = {sort: int(pieces.duration_ns[pieces.sort == sort].sum()) for sort in Sort}
    is_inside = (pieces.sort == Sort.OPERATOR) & (places.module[pieces.owner] > 0)
    inside = int(pieces.duration_ns[is_inside].sum())
    return StepRows(
        rows=grouped.rows(pieces),
        parts_ns={
            "operators": inside,
            "outside": sums[Sort.OPERATOR] - inside,
            "communication": sums[Sort.COMMUNICATION],
            "host": sums[Sort.HOST],
            "engine": sums[Sort.ENGINE],
        },
        device_busy_ns=None if events.kernels is None else events.kernels.busy_ns,
        events=len(events),
        calls=grouped.calls(pieces),
    )


class _Grouped:
    """Sums the pieces and the events of each row; rows are numbers meanwhile."""

    def __init__(self, events: Events, places: Attribution) -> None:
        self._events, self._places = events, places
        self._ops, self._op = operators_of(events, places)
        self._device_ns = np.zeros(len(events), np.int64)
        self._around = _around(events, places.nesting.parent)
        # What runs within a collective's call is the call's.
        owner = np.where(places.call >= 0, places.call, np.arange(len(events)))
        np.add.at(self._device_ns, owner, np.maximum(events.device_ns, 0))

    def rows(self, pieces: Pieces) -> dict[Key, Row]:
        piece_key = self._keys(pieces.owner, pieces.sort, pieces.op)
        keys, place = np.unique(piece_key, return_inverse=True)
        self_ns = np.bincount(place, weights=pieces.duration_ns, minlength=len(keys)).astype(np.int64)
        runs, total_ns, device_ns = self._of_events(pieces, keys)
        for sort in (Sort.ENGINE, Sort.COMMUNICATION):  # such a piece that is no event is a run of its own
            alone = (pieces.sort == sort) & ((pieces.op != pieces.owner) | (sort == Sort.ENGINE))
            runs += np.bincount(place[alone], minlength=len(keys))
            total_ns += np.bincount(
                place[alone], weights=pieces.duration_ns[alone], minlength=len(keys)
            ).astype(np.int64)
        devices = [None] * len(keys) if self._events.kernels is None else device_ns.tolist()
        sums = map(Row, runs.tolist(), self_ns.tolist(), total_ns.tolist(), devices)
        return dict(zip(self._named(keys), sums, strict=True))

    def calls(self, pieces: Pieces) -> StepCalls:
        """Each run of an operator, collective or module on the rank's threads, as `_of_events` counts them: a
        run within another of the same row is part of it.
        """
        events, places, parent = self._events, self._places, self._around
        index, sort, key, is_outer = self._runs(pieces)
        outer = index[is_outer & ((sort != Sort.HOST) | (places.module[index] > 0))]
        of = np.arange(len(events))
        inner = index[~is_outer]  # what is around these is of the same row
        is_inner = np.zeros(len(events), bool)
        is_inner[inner] = True
        while len(inner):
            of[inner] = parent[of[inner]]
            inner = inner[is_inner[of[inner]]]
        call = np.full(len(events), NOTHING, np.int64)
        call[outer] = np.arange(len(outer))
        own = np.flatnonzero((pieces.op == pieces.owner) & (pieces.sort != Sort.ENGINE))
        of_piece = call[of[pieces.owner[own]]]
        own, of_piece = own[of_piece >= 0], of_piece[of_piece >= 0]
        self_ns = np.bincount(of_piece, weights=pieces.duration_ns[own], minlength=len(outer))
        device_ns = None
        if events.kernels is not None:
            known = index[call[of[index]] >= 0]
            device_ns = np.bincount(call[of[known]], self._device_ns[known], len(outer)).astype(np.int64)
        return StepCalls(
            parts=_LABELS,
            modules=places.paths,
            ops=self._ops,
            part=places.part[outer].astype(np.int64),
            module=places.module[outer],
            op=self._op[outer],
            ordinal=_ordinals(key[outer]),
            start_ns=events.start_ns[outer],
            duration_ns=events.duration_ns[outer],
            self_ns=self_ns.astype(np.int64),
            device_ns=device_ns,
            kernels=events.kernels,
        )

    def _runs(self, pieces: Pieces) -> tuple[Ints, Ints, Ints, Bools]:
        """The events that rows are made of, what their own time was spent on, the row number of each event,
        and which of them lie within no other of their row.
        """
        events, parent = self._events, self._around
        sort = np.full(len(events), NOTHING, np.int64)
        is_own = (pieces.op == pieces.owner) & (pieces.sort != Sort.ENGINE)
        sort[pieces.owner[is_own]] = pieces.sort[is_own]
        index = np.flatnonzero(sort >= 0)
        key = np.full(len(events), NOTHING, np.int64)
        key[index] = self._keys(index, sort[index], index)
        is_outer = (parent[index] < 0) | (key[np.maximum(parent[index], 0)] != key[index])
        return index, sort[index], key, is_outer

    def _of_events(self, pieces: Pieces, keys: Ints) -> tuple[Ints, Ints, Ints]:
        """The number of each row's events, their total time, and that of their kernels. An event within
        another of the same row is part of it.
        """
        events = self._events
        index, _, key, is_outer = self._runs(pieces)
        place = np.searchsorted(keys, key[index])
        outer = place[is_outer]
        runs = np.bincount(outer, minlength=len(keys))
        durations = events.duration_ns[index[is_outer]]
        total_ns = np.bincount(outer, weights=durations, minlength=len(keys)).astype(np.int64)
        device_ns = np.bincount(place, self._device_ns[index], len(keys)).astype(np.int64)
        return runs, total_ns, device_ns

    def _keys(self, owner: Ints, sort: Ints, op: Ints) -> Ints:
        """A number for each row; the engine's time belongs to no module."""
        places = self._places
        is_engine = sort == Sort.ENGINE
        module = np.where(is_engine, 0, places.module[owner])
        name = np.where(is_engine, 0, self._op[op])
        part = np.where(is_engine, int(Part.BACKWARD), places.part[owner])
        keys: Ints = ((part * len(places.paths) + module) * _SORTS + sort) * len(self._ops) + name
        return keys

    def _named(self, keys: Ints) -> Iterator[Key]:
        rest, op = np.divmod(keys, len(self._ops))
        rest, sort = np.divmod(rest, _SORTS)
        part, module = np.divmod(rest, len(self._places.paths))
        texts = (_LABELS, part), (self._places.paths, module), (self._ops, op)
        labels, paths, ops = (map(names.__getitem__, index.tolist()) for names, index in texts)
        return map(Key, labels, paths, sort.tolist(), ops)


def _around(events: Events, parent: Ints) -> Ints:
    """The event around each; one that a dispatch in Python calls again is within the first one's call."""
    is_dispatch = events.marked([name in DISPATCHES for name in events.names])
    around: Ints = parent.copy()
    while (again := (around >= 0) & is_dispatch[np.maximum(around, 0)]).any():
        around[again] = parent[around[again]]
    return around


def _ordinals(key: Ints) -> Ints:
    """How many equal values came before each."""
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    first = np.searchsorted(ordered, ordered, side="left")
    made = np.empty(len(key), np.int64)
    made[order] = np.arange(len(key)) - first
    return made


def operators_of(events: Events, places: Attribution) -> tuple[list[str], Ints]:
    """Operators' names, "" first, and the index of each event's; a node has that of the operator it runs."""
    index: dict[str, int] = {"": 0}
    bare = [name.removeprefix(NODE) for name in events.names]
    by_name = np.array([index.setdefault(name, len(index)) for name in bare], np.int64)
    op = by_name[events.name] if len(events) else np.zeros(0, np.int64)
    op[places.is_module | places.is_step] = 0
    return list(index), op
