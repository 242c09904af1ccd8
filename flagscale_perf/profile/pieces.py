"""Cuts the time of one step into pieces that belong to one event each: pieces do not overlap, and those of
the rank's threads add up to the step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from flagscale_perf.profile.attribution import Attribution
from flagscale_perf.profile.events import Bools, Events, Ints
from flagscale_perf.profile.overlap import works
from flagscale_perf.profile.records import Sort


@dataclass(frozen=True)
class Pieces:
    """The pieces as columns, in no order.

    Attributes:
        owner: index of the innermost event that is open.
        start_ns, duration_ns: of the piece.
        sort: a `Sort`.
        op: index of the event whose name says what the time was spent on: the owner, or a collective.
    """

    owner: Ints
    start_ns: Ints
    duration_ns: Ints
    sort: Ints
    op: Ints

    @classmethod
    def of(cls, events: Events, places: Attribution, is_collective: Bools) -> Pieces:
        """The pieces of the step's thread, and of the backward's where that runs on threads of its own.

        `is_collective`: events that are a collective, or call one. Raises ValueError without a step's range.
        """
        steps = np.flatnonzero(places.is_step)
        if not len(steps):
            raise ValueError("the step has no range")
        step = int(steps[0])
        is_ours = _within(events, places, step)
        pieces = _cut(events, places, is_ours, is_collective)
        others = _backward_threads(events, places, step)
        if others.any():
            theirs = _cut(events, places, others, is_collective)
            pieces = _beside(pieces, theirs, events, places, others)
        return _waiting(pieces, events, is_collective & events.is_async)


def _within(events: Events, places: Attribution, step: int) -> Bools:
    inside = np.full(len(events), -1, np.int64)
    inside[step] = 1
    found: Bools = places.nesting.inherited(inside) > 0
    return found


def _backward_threads(events: Events, places: Attribution, step: int) -> Bools:
    """Events on the backward engine's threads, which run while the step's thread waits."""
    threads = np.setdiff1d(np.unique(events.thread[places.is_node]), events.thread[[step]])
    is_inside = (events.start_ns >= events.start_ns[step]) & (events.start_ns < events.end_ns[step])
    found: Bools = np.isin(events.thread, threads) & is_inside & ~events.is_async
    return found


def _cut(events: Events, places: Attribution, is_meant: Bools, is_collective: Bools) -> Pieces:
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
    sort[is_collective[owner]] = Sort.COMMUNICATION
    sort[(places.is_module | places.is_step | places.is_user)[owner]] = Sort.HOST
    is_engine = places.is_node[inner] & (before >= 0) & places.is_node[before]
    sort[: len(inner)][is_engine] = Sort.ENGINE
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
    return Pieces(
        owner=np.concatenate([pieces.owner, theirs.owner, between[:, 0]]),
        start_ns=np.concatenate([pieces.start_ns, theirs.start_ns, between[:, 1]]),
        duration_ns=np.concatenate([np.maximum(remaining, 0), theirs.duration_ns, between[:, 2]]),
        sort=np.concatenate([pieces.sort, theirs.sort, waits]),
        op=np.concatenate([pieces.op, theirs.op, between[:, 0]]),
    )


def _waiting(pieces: Pieces, events: Events, is_async: Bools) -> Pieces:
    """Time in Python that ends with a collective on another thread: until then the step waited for it.
    Python is what is outside of operators, and inside of an autograd function.
    """
    collectives = np.flatnonzero(is_async)
    if not len(collectives):
        return pieces
    is_python = (pieces.sort == Sort.OPERATOR) & ~works(events)[pieces.owner] | (pieces.sort == Sort.HOST)
    host = np.flatnonzero(is_python & (pieces.duration_ns > 0))
    host = host[np.argsort(pieces.start_ns[host], kind="stable")]
    ends = events.end_ns[collectives]
    place = np.searchsorted(pieces.start_ns[host], ends, side="right") - 1
    fits = place >= 0
    collectives, ends, held = collectives[fits], ends[fits], host[place[fits]]
    begin = np.maximum(pieces.start_ns[held], events.start_ns[collectives])
    wait_ns = ends - begin
    is_inside = ends <= pieces.start_ns[held] + pieces.duration_ns[held]
    collectives, held, wait_ns = collectives[is_inside], held[is_inside], wait_ns[is_inside]
    # of several that end in one piece, the one that was waited for longest
    order = np.lexsort((wait_ns, held))
    longest = np.append(np.diff(held[order]) != 0, True)[: len(order)]
    chosen = order[longest]
    collectives, held, wait_ns = collectives[chosen], held[chosen], np.maximum(wait_ns[chosen], 0)
    remaining = pieces.duration_ns.copy()
    remaining[held] -= wait_ns
    return replace(
        pieces,
        owner=np.concatenate([pieces.owner, pieces.owner[held]]),
        start_ns=np.concatenate([pieces.start_ns, pieces.start_ns[held]]),
        duration_ns=np.concatenate([remaining, wait_ns]),
        sort=np.concatenate([pieces.sort, np.full(len(held), int(Sort.COMMUNICATION), np.int64)]),
        op=np.concatenate([pieces.op, collectives]),
    )
