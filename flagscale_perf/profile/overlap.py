"""How much of each collective is exposed: time in which the rank computes nothing else."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

import numpy as np

from flagscale_perf.profile.attribution import Attribution
from flagscale_perf.profile.collectives import Collective
from flagscale_perf.profile.events import NOTHING, Events, Ints, Kernels
from flagscale_perf.profile.operations import named
from flagscale_perf.profile.pieces import Pieces
from flagscale_perf.profile.records import Sort


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
    """By collective, the pieces of its call, of the calls around this, and of the waiting for it. A piece of
    none of these, such as what a wait does besides waiting, is of the last one called before it.
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
