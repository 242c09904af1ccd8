"""A wait that polls for a while before it sleeps.

Waking a process up takes tens of microseconds, more than a small call. After a short wait, the next one polls
for up to `SPIN_NS` before sleeping; after a long wait, the next one sleeps at once. So no core is kept busy
while a method computes or while there are no calls, nor on a machine with one core or with overloaded cores.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

SPIN_NS = 50_000
SHORT_NS = 2 * SPIN_NS  # a wait that includes two wake-ups, which polling would have saved
LOAD_FOR_NS = 10**9  # for so long the machine's load is assumed to stay the same
FULL = 1.25  # runnable processes per core; two polling ends of a connection are two of them
now = time.monotonic_ns
yield_core = os.sched_yield  # yields to the other process, which may need this very core


class Spin:
    """The state of one place where a thread waits."""

    __slots__ = ("_cores", "_has_room", "_is_worth_it", "_look", "_load_until_ns")

    def __init__(self, look: Callable[[int], object]) -> None:
        """`look(0)` tells at once whether something is there, as `poll` of the objects in `select` does."""
        self._look = look
        self._cores = len(os.sched_getaffinity(0))
        self._has_room = self._is_worth_it = False
        self._load_until_ns = 0

    def wait(self) -> int:
        """Returns the start time of the wait, once something is there or it is time to sleep."""
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
        """Something has arrived. Notes how long that took, including sleep."""
        self._is_worth_it = waited_ns < SHORT_NS
