"""A wait that looks for news for a while before it sleeps.

To wake a process up takes tens of microseconds, more than a small call does. Whoever had a short wait the
last time looks again and again for `SPIN_NS` and sleeps only then; whoever had a long one sleeps at once. So
nobody keeps a core busy while a method computes, while nobody calls, or on a machine that has too much to do.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

SPIN_NS = 50_000
SHORT_NS = 2 * SPIN_NS  # a wait with two wake-ups in it, which looking would have made shorter
now = time.monotonic_ns
yield_core = os.sched_yield  # to the other process, which may have to run on this very core


class Spin:
    """Of one place where a thread waits."""

    __slots__ = ("_is_worth_it", "_look", "_may_spin")

    def __init__(self, look: Callable[[int], object]) -> None:
        """`look(0)` says at once whether there is something, as `poll` of the objects of `select` does."""
        self._look = look
        self._may_spin = len(os.sched_getaffinity(0)) > 1
        self._is_worth_it = False

    def wait(self) -> int:
        """Returns once there is something, or when it is time to sleep; the mark at which it began."""
        begun = now()
        if self._is_worth_it:
            look, end = self._look, begun + SPIN_NS
            while not look(0) and now() < end:
                yield_core()
        return begun

    def ended(self, waited_ns: int) -> None:
        """There is something. How long that took, sleep included."""
        self._is_worth_it = self._may_spin and waited_ns < SHORT_NS
