"""A wait that looks for news for a while before it sleeps.

To wake a process up takes tens of microseconds, more than a small call does. Whoever had a short wait the
last time looks again and again for `SPIN_NS` and sleeps only then; whoever had a long one sleeps at once. So
nobody keeps a core busy while a method computes or while nobody calls; nor on a machine of one core, or whose
cores have more to do than they can.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

SPIN_NS = 50_000
SHORT_NS = 2 * SPIN_NS  # a wait with two wake-ups in it, which looking would have made shorter
LOAD_FOR_NS = 10**9  # so long what the machine has to do is taken to be the same
FULL = 1.25  # runnable processes a core: both ends of a connection that look are two of them
now = time.monotonic_ns
yield_core = os.sched_yield  # to the other process, which may have to run on this very core


class Spin:
    """Of one place where a thread waits."""

    __slots__ = ("_cores", "_has_room", "_is_worth_it", "_look", "_load_until_ns")

    def __init__(self, look: Callable[[int], object]) -> None:
        """`look(0)` says at once whether there is something, as `poll` of the objects of `select` does."""
        self._look = look
        self._cores = len(os.sched_getaffinity(0))
        self._has_room = self._is_worth_it = False
        self._load_until_ns = 0

    def wait(self) -> int:
        """Returns once there is something, or when it is time to sleep; the mark at which it began."""
        begun = now()
        if self._is_worth_it:
            if begun > self._load_until_ns:
                self._has_room = self._cores > 1 and os.getloadavg()[0] <= FULL * (os.cpu_count() or 1)
                self._load_until_ns = begun + LOAD_FOR_NS
            if self._has_room:
                look, end = self._look, begun + SPIN_NS
                while not look(0) and now() < end:
                    yield_core()
        return begun

    def ended(self, waited_ns: int) -> None:
        """There is something. How long that took, sleep included."""
        self._is_worth_it = waited_ns < SHORT_NS
