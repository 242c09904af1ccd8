"""Whether a drain gets on: its beats are in the ring, for the trainer to see, and it sees itself when there
was none for long.
"""

from __future__ import annotations

from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.peers.rings import AnyRing
from flagscale_perf.spine.ring import Ring

STILL_S = 10  # without a beat: worth a line


class Pulse:
    """The drain's side of the heartbeat that the trainer watches."""

    def __init__(self, ring: AnyRing) -> None:
        self._ring = ring
        self._last_ns = monotonic_ns()
        self._least_ns = STILL_S * NS_PER_S

    def go_on(self) -> None:
        """A beat in the middle of work that takes its time."""
        self._ring.beat()
        self._last_ns = monotonic_ns()

    def beat(self) -> float | None:
        """A beat; the seconds since the last one if that was long ago, at least twice as long as what was
        returned last.
        """
        stood_ns = monotonic_ns() - self._last_ns
        self.go_on()
        if stood_ns < self._least_ns:
            return None
        self._least_ns = 2 * stood_ns
        return stood_ns / NS_PER_S


class Watcher:
    """The trainer's side, of one writer from its start on; looks once a second."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._first = self._beats = ring.beats
        self._still = 0

    def stands_still(self) -> bool:
        """Whether it has begun and had no beat for so long. Looks are counted and not the time, as the
        trainer may be stopped, too.
        """
        before, self._beats = self._beats, self._ring.beats
        self._still = self._still + 1 if self._beats == before != self._first else 0
        return self._still >= STILL_S
