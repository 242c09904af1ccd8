"""The side that stores into a ring, safe where a process forks."""

from __future__ import annotations

import os
import weakref

from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.records import EventRecord, Record
from flagscale_perf.spine.ring import Ring


class Producer:
    """Stores records. `put` and `event` are called on one thread only; they neither wait nor raise."""

    def __init__(self, ring: Ring | None) -> None:
        """Without a ring nothing is kept."""
        self._ring = ring
        _live.add(self)

    def put(self, record: Record) -> None:
        """Keeps the record; counts a drop if there is no room."""
        ring = self._ring
        if ring is not None:
            ring.put(record)

    def event(self, name: str, position: int, text: str) -> None:
        """Keeps an `EventRecord`; its text may be cut to 200 bytes."""
        self.put(EventRecord(name, monotonic_ns(), position, text))

    def _close(self, reason: str) -> Ring | None:
        """Stores nothing any more. Returns the ring, closed for `reason`; None the second time and in
        a forked child.
        """
        ring, self._ring = self._ring, None
        if ring is not None:
            ring.close(reason, monotonic_ns())
        return ring

    def _abandon(self) -> None:
        """In a forked child: the ring stays the parent's."""
        self._ring = None


_live: weakref.WeakSet[Producer] = weakref.WeakSet()


def _abandon_all() -> None:
    for producer in list(_live):
        producer._abandon()


os.register_at_fork(after_in_child=_abandon_all)
