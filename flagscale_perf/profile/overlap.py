"""How much of each collective is exposed: time in which the rank computes nothing else."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

import numpy as np

from flagscale_perf.profile.collectives import Collective
from flagscale_perf.profile.events import Bools, Events, Ints, Kernels, Nesting
from flagscale_perf.profile.operations import Role, named

_FUNCTION = 0  # of torch's RecordScope: an operator
_ENGINE = "autograd::engine::"


def exposed(collectives: Sequence[Collective], events: Events, nesting: Nesting) -> list[Collective]:
    """The same collectives, each with its exposed time.

    On a device: while no kernel of another sort runs. On the host: the call itself, and then the time up to
    the operation's end in which the thread that has called does nothing that the profiler sees, if it still
    does nothing at this end: a thread that waits goes on when the operation is over, not before. So a wait
    begins after the last event before this end. Two waits never cover the same time.
    """
    host = _Host(events, nesting)
    device = None if events.kernels is None else _Device(events.kernels, {each.op for each in collectives})
    found: dict[int, Collective] = {}
    for at in sorted(range(len(collectives)), key=lambda at: _end_ns(collectives[at])):
        each = collectives[at]
        if device is not None:
            found[at] = replace(each, exposed_ns=device.exposed_ns(each.start_ns, _end_ns(each)))
        else:
            found[at] = replace(each, exposed_ns=host.exposed_ns(each))
    return [found[at] for at in range(len(collectives))]


def _end_ns(each: Collective) -> int:
    return each.start_ns + each.total_ns


def works(events: Events) -> Bools:
    """Whether each event is an operator that does more than call others and wait: what an autograd function
    in Python does itself is the latter, as far as anybody can see.
    """
    found: Bools = events.marked([_is_work(name) for name in events.names]) & (events.scope == _FUNCTION)
    return found


def _is_work(name: str) -> bool:
    said = named(name)
    return "::" in name and not name.startswith(_ENGINE) and (said is None or said.role is not Role.WAIT)


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

    def exposed_ns(self, start_ns: int, end_ns: int) -> int:
        """The part of this time in which no such kernel runs."""
        inside = np.minimum(self._ends, end_ns) - np.maximum(self._starts, start_ns)
        return end_ns - start_ns - int(np.maximum(inside, 0).sum())


class _Host:
    """What each thread does, as far as the profiler sees it."""

    def __init__(self, events: Events, nesting: Nesting) -> None:
        self._events, self._end_ns, self._parent = events, events.end_ns, nesting.parent
        self._works = works(events)
        self._threads: dict[int, tuple[Ints, Ints, Ints]] = {}
        self._waited_until: dict[int, int] = {}

    def exposed_ns(self, each: Collective) -> int | None:
        """The exposed part; None if the calling thread is unknown."""
        events, end_ns = self._events, _end_ns(each)
        if each.event < 0 or events.is_async[each.event]:
            return None
        thread = int(events.thread[each.event])
        called_ns, returned_ns = int(events.start_ns[each.event]), int(self._end_ns[each.event])
        in_call_ns = max(0, min(returned_ns, end_ns) - called_ns)
        quiet_ns = self._quiet_since(each.event, end_ns)
        if quiet_ns is None:
            return in_call_ns
        begin_ns = max(quiet_ns, returned_ns, self._waited_until.get(thread, 0))
        if begin_ns < end_ns:
            self._waited_until[thread] = end_ns
        return in_call_ns + max(0, end_ns - begin_ns)

    def _quiet_since(self, call: int, end_ns: int) -> int | None:
        """Since when the calling thread has been idle when its operation ends; None if it is working then."""
        index, starts, ends = self._marks(int(self._events.thread[call]))
        before = int(np.searchsorted(starts, end_ns, side="right")) - 1
        around = int(index[before])
        while around >= 0 and self._end_ns[around] <= end_ns:
            around = int(self._parent[around])
        if around >= 0 and self._works[around] and around != call:
            return None
        ended = int(np.searchsorted(ends, end_ns, side="left")) - 1
        return max(int(starts[before]), int(ends[ended]) if ended >= 0 else 0)

    def _marks(self, thread: int) -> tuple[Ints, Ints, Ints]:
        """A thread's events, with their starts and ends sorted."""
        if thread not in self._threads:
            events = self._events
            index = np.flatnonzero((events.thread == thread) & ~events.is_async)
            self._threads[thread] = index, events.start_ns[index], np.sort(self._end_ns[index])
        return self._threads[thread]
