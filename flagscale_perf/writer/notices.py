"""What the writer notices by itself: records lost, a clock that was set, and that it stood still."""

from __future__ import annotations

from flagscale_perf.spine.clock import NS_PER_S, Anchor
from flagscale_perf.spine.peers.rings import AnyRing
from flagscale_perf.spine.records import ClockRecord
from flagscale_perf.writer.journal import Journal
from flagscale_perf.writer.pulse import Pulse

CLOCK_STEP_NS = 2 * NS_PER_S
ANCHOR_PERIOD_NS = 60 * NS_PER_S


class Notices:
    """Looks once a cycle, and puts what it sees into the journal."""

    def __init__(self, ring: AnyRing, anchor: Anchor, journal: Journal) -> None:
        self._ring = ring
        self._anchor = anchor
        self._journal = journal
        self._pulse = Pulse(ring)
        self._has_complained_of_drops = False
        self._next_drop_notice = 1
        self._clock_offset_ns = 0
        self._anchored_ns = anchor.mono_ns

    def look(self) -> None:
        """Checks everything that is worth a notice."""
        self.beat()
        self._clock()
        self._drops()

    def beat(self) -> None:
        """Says that the writer gets on; records it if it had not for long. The trainer has warned the user
        meanwhile.
        """
        if (stood_s := self._pulse.beat()) is not None:
            text = f"the writer stood still for {stood_s:.0f} s: its disk did not answer, or it was stopped"
            self._journal.waiting.append(self._journal.event("failure", text))

    def go_on(self) -> None:
        """A beat in the middle of work that takes its time."""
        self._pulse.go_on()

    def anchor(self) -> None:
        """Records both clocks as they are now."""
        now = Anchor.now()
        self._anchored_ns = now.mono_ns
        self._journal.waiting.append(ClockRecord(now.wall_ns, now.mono_ns))

    def _clock(self) -> None:
        """Labels keep the start's clock; a clock that was set since is worth a line."""
        now = Anchor.now()
        offset_ns = now.wall_ns - self._anchor.wall_of(now.mono_ns)
        if now.mono_ns - self._anchored_ns >= ANCHOR_PERIOD_NS:
            self.anchor()
        if abs(offset_ns - self._clock_offset_ns) > CLOCK_STEP_NS:
            moved_s = (offset_ns - self._clock_offset_ns) / NS_PER_S
            self._clock_offset_ns = offset_ns
            self.anchor()
            self._journal.report(
                "clock", f"the wall clock was set by {moved_s:+.1f} s; times here go on as before"
            )

    def _drops(self) -> None:
        dropped = self._ring.dropped
        if dropped >= self._next_drop_notice:
            self._next_drop_notice = 2 * dropped
            text = f"{dropped} records lost so far: more came than the disk took"
            self._journal.report("drop", text)
            if not self._has_complained_of_drops:
                self._has_complained_of_drops = True
                self._journal.complain(text)
