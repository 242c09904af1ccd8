"""Cuts the time of one step into pieces that belong to one event each: pieces do not overlap, and those of
the rank's threads add up to the step.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from flagscale_perf.profile.attribution import Attribution
from flagscale_perf.profile.communication import Collective
from flagscale_perf.profile.events import NOTHING, Bools, Events, Ints, Kernels
from flagscale_perf.profile.operations import Role, named
from flagscale_perf.profile.records import Sort

_FUNCTION = 0  # of torch's RecordScope: an operator
_ENGINE = "autograd::engine::"


@dataclass(frozen=True)
class Pieces:
    """The pieces as columns, in no order.

    Attributes:
        owner: index of the innermost event that is open.
        start_ns, duration_ns: start and duration of the piece.
        sort: a `Sort`.
        op: index of the event whose name says what the time was spent on: the owner, or a collective.
    """

    owner: Ints
    start_ns: Ints
    duration_ns: Ints
    sort: Ints
    op: Ints

    def with_others(self, *others: Pieces) -> Pieces:
        """These pieces and the others together."""
        columns = zip(*(vars(one).values() for one in (self, *others)), strict=True)
        return Pieces(*map(np.concatenate, columns))

    @classmethod
    def of(cls, events: Events, places: Attribution, collectives: Sequence[Collective] = ()) -> Pieces:
        """The pieces of the step's thread, and of the backward's where that runs on threads of its own. What
        runs within a collective's call is the call's. Raises ValueError without a step's range.
        """
        steps = np.flatnonzero(places.is_step)
        if not len(steps):
            raise ValueError("the step has no range")
        step = int(steps[0])
        pieces = _cut(events, places, places.nesting.within(np.arange(len(events)) == step))
        others = _backward_threads(events, places, step)
        if others.any():
            pieces = _beside(pieces, _cut(events, places, others), events, places, others)
        return _waiting(pieces, events, collectives, int(events.thread[step]))


def _backward_threads(events: Events, places: Attribution, step: int) -> Bools:
    """Events on the backward engine's threads, which run while the step's thread waits."""
    threads = np.setdiff1d(np.unique(events.thread[places.is_node]), events.thread[[step]])
    is_inside = (events.start_ns >= events.start_ns[step]) & (events.start_ns < events.end_ns[step])
    found: Bools = np.isin(events.thread, threads) & is_inside & ~events.is_async
    return found


def _cut(events: Events, places: Attribution, is_meant: Bools) -> Pieces:
    """The pieces of each event that its children leave: before each child, and after the last one."""
    nesting, end_ns = places.nesting, events.end_ns
    index = np.flatnonzero(is_meant)
    inner = index[nesting.parent[index] >= 0]
    inner = inner[is_meant[nesting.parent[inner]]]
    around, before = nesting.parent[inner], nesting.previous[inner]
    begin = np.where(before >= 0, end_ns[before], events.start_ns[around])
    last = nesting.last[index]
    tail = np.where(last >= 0, end_ns[last], events.start_ns[index])
    owner = np.concatenate([around, index])
    start_ns = np.concatenate([begin, tail])
    stop_ns = np.concatenate([events.start_ns[inner], end_ns[index]])
    sort = np.full(len(owner), int(Sort.OPERATOR), np.int64)
    call = places.call[owner]
    sort[call >= 0] = Sort.COMMUNICATION
    sort[(places.is_module | places.is_step | places.is_user)[owner]] = Sort.HOST
    is_engine = places.is_node[inner] & (before >= 0) & places.is_node[before]
    sort[: len(inner)][is_engine] = Sort.ENGINE
    owner = np.where(sort == Sort.COMMUNICATION, call, owner)
    duration_ns = np.maximum(stop_ns - start_ns, 0)
    return Pieces(owner, start_ns, duration_ns, sort, owner.copy())


def _beside(pieces: Pieces, theirs: Pieces, events: Events, places: Attribution, others: Bools) -> Pieces:
    """The pieces of all threads, without the time in which the step's thread waits for the others."""
    order = np.argsort(pieces.start_ns, kind="stable")
    top = np.flatnonzero(others & (places.nesting.parent < 0))
    after = np.searchsorted(pieces.start_ns[order], events.start_ns[top], side="right")
    held = order[np.maximum(after - 1, 0)]
    remaining = pieces.duration_ns.copy()
    engine: list[tuple[int, int, int]] = []
    for piece in np.unique(held):
        nodes = top[held == piece]
        begin, end = int(events.start_ns[nodes[0]]), int(events.end_ns[nodes].max())
        piece_end = int(pieces.start_ns[piece] + pieces.duration_ns[piece])
        remaining[piece] -= max(0, min(end, piece_end) - begin)
        gaps = events.start_ns[nodes[1:]] - np.maximum.accumulate(events.end_ns[nodes])[:-1]
        starts = events.end_ns[nodes[:-1]]
        engine += [
            (int(node), int(start), int(gap))
            for node, start, gap in zip(nodes[1:], starts, gaps, strict=True)
            if gap > 0
        ]
    between = np.array(engine, np.int64).reshape(-1, 3)
    waits = np.full(len(between), int(Sort.ENGINE), np.int64)
    left = replace(pieces, duration_ns=np.maximum(remaining, 0))
    return left.with_others(theirs, Pieces(between[:, 0], between[:, 1], between[:, 2], waits, between[:, 0]))


def _waiting(pieces: Pieces, events: Events, collectives: Sequence[Collective], step_thread: int) -> Pieces:
    """Takes the waiting for collectives that the host executes out of the pieces in which a thread does
    nothing that the profiler sees. A thread that waits goes on when the operation is over, not before: so it
    has waited since the last event before that end. Several waits in one piece follow each other.
    """
    asked = [each for each in collectives if each.executed >= 0]
    if not asked:
        return pieces
    call, op = np.array([(each.event, each.executed) for each in asked], np.int64).T
    order = np.argsort(events.end_ns[op], kind="stable")
    call, op = call[order], op[order]
    held = _held(pieces, events, np.where(events.is_async[call], step_thread, events.thread[call]), op)
    fits = held >= 0
    call, op, held = call[fits], op[fits], held[fits]
    order = np.argsort(held, kind="stable")  # each piece's waits, in the order of their ends
    call, op, held = call[order], op[order], held[order]
    begin_ns = np.maximum(pieces.start_ns[held], events.start_ns[call])
    is_next = np.append(False, held[1:] == held[:-1])[: len(held)]
    begin_ns[is_next] = np.maximum(begin_ns, np.append(0, events.end_ns[op][:-1])[: len(op)])[is_next]
    wait_ns = events.end_ns[op] - begin_ns
    remaining = pieces.duration_ns.copy()
    np.subtract.at(remaining, held, wait_ns)
    sort = np.full(len(held), int(Sort.COMMUNICATION), np.int64)
    waits = Pieces(pieces.owner[held], begin_ns, wait_ns, sort, op)
    return replace(pieces, duration_ns=remaining).with_others(waits)


def _held(pieces: Pieces, events: Events, thread: Ints, op: Ints) -> Ints:
    """The piece of this thread in which each operation ends; -1 where the thread works then."""
    is_idle = ~_works(events)[pieces.owner] & (pieces.duration_ns > 0)
    ends_ns, held = events.end_ns[op], np.full(len(op), NOTHING, np.int64)
    for own in np.unique(thread):
        idle = np.flatnonzero(is_idle & (events.thread[pieces.owner] == own))
        idle = idle[np.argsort(pieces.start_ns[idle], kind="stable")]
        meant = np.flatnonzero(thread == own)
        place = np.searchsorted(pieces.start_ns[idle], ends_ns[meant], side="right") - 1
        meant, found = meant[place >= 0], idle[place[place >= 0]]
        is_inside = ends_ns[meant] <= pieces.start_ns[found] + pieces.duration_ns[found]
        held[meant[is_inside]] = found[is_inside]
    return held


def _works(events: Events) -> Bools:
    """Whether each event is an operator that does more than call others and wait: what an autograd function
    in Python does itself is the latter, as far as the profiler shows.
    """
    works: Bools = events.marked([_is_work(name) for name in events.names]) & (events.scope == _FUNCTION)
    return works


def _is_work(name: str) -> bool:
    said = named(name)
    return "::" in name and not name.startswith(_ENGINE) and (said is None or said.role is not Role.WAIT)


def exposed(
    collectives: Sequence[Collective], events: Events, places: Attribution, pieces: Pieces
) -> list[Collective]:
    """The same collectives, each with its exposed time; no time counts twice. On a device: while no kernel of
    another sort runs, and no collective that is over before. On the host: the pieces of the step that are
    communication; each is one collective's, so that all collectives make the communication of the step. None
    where neither is known.
    """
    host_ns = _on_host(collectives, events, places, pieces)
    found = [
        replace(each, exposed_ns=ns) if each.executed >= 0 else each
        for each, ns in zip(collectives, host_ns.tolist(), strict=True)
    ]
    if events.kernels is not None:
        device = _Device(events.kernels, {each.op for each in collectives})
        for at in sorted(range(len(found)), key=lambda at: found[at].start_ns + found[at].total_ns):
            if found[at].executed < 0:
                found[at] = replace(found[at], exposed_ns=device.exposed_ns(found[at]))
    return found


def _on_host(collectives: Sequence[Collective], events: Events, places: Attribution, pieces: Pieces) -> Ints:
    """The collective of each piece: pieces of its call, of the calls around it, and of the wait for it. Any
    other piece, such as what a wait does besides waiting, is of the last collective called before it.
    """
    if not collectives:
        return np.zeros(0, np.int64)
    owner = np.full(len(events), NOTHING, np.int64)
    for place, each in enumerate(collectives):
        call = each.event
        while call >= 0:
            owner[call] = place
            above = int(places.nesting.parent[call])
            call = int(places.call[above]) if above >= 0 else NOTHING
        if each.executed >= 0:
            owner[each.executed] = place
    meant = np.flatnonzero(pieces.sort == Sort.COMMUNICATION)
    called = [events.start_ns[each.event] if each.event >= 0 else each.start_ns for each in collectives]
    order = np.argsort(called, kind="stable")
    before = np.searchsorted(np.array(called)[order], pieces.start_ns[meant], side="right") - 1
    of_piece = np.where(owner[pieces.op[meant]] >= 0, owner[pieces.op[meant]], order[np.maximum(before, 0)])
    found = np.zeros(len(collectives), np.int64)
    np.add.at(found, of_piece, pieces.duration_ns[meant])
    return found


class _Device:
    """When kernels run that belong to no collective."""

    def __init__(self, kernels: Kernels, ours: Set[str]) -> None:
        others = [named(name) is None and name not in ours for name in kernels.names]
        is_other = np.array(others, bool)[kernels.name]
        starts = kernels.start_ns[is_other]
        ends = np.maximum.accumulate(starts + kernels.duration_ns[is_other])
        first = np.ones(len(starts), bool)
        first[1:] = starts[1:] > ends[:-1]
        self._starts = starts[first]
        self._ends = ends[np.append(np.flatnonzero(first)[1:] - 1, len(ends) - 1)] if len(ends) else ends

        self._until_ns = 0

    def exposed_ns(self, each: Collective) -> int:
        """The part of its time in which no such kernel runs, after the end of the one asked for before. They
        are asked for in the order of their ends.
        """
        start_ns, end_ns = max(each.start_ns, self._until_ns), each.start_ns + each.total_ns
        self._until_ns = end_ns
        inside = np.minimum(self._ends, end_ns) - np.maximum(self._starts, start_ns)
        return max(0, end_ns - start_ns) - int(np.maximum(inside, 0).sum())
