"""Events that the writer makes itself: lost records, a clock that was set, that it was blocked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from flagscale_perf.spine.clock import NS_PER_S, Anchor, monotonic_ns
from flagscale_perf.spine.errors import traceback_lines
from flagscale_perf.spine.language import live
from flagscale_perf.spine.live import FINDINGS, FindingRecord
from flagscale_perf.spine.peers.rings import AnyRing
from flagscale_perf.spine.processes import cpu_wait_ns
from flagscale_perf.spine.records import ClockRecord, EventRecord, Record
from flagscale_perf.writer.instrument import Entry, Remark
from flagscale_perf.writer.losses import OVERFLOW
from flagscale_perf.writer.messages import Send, Trouble
from flagscale_perf.writer.notify import Notifier

CLOCK_STEP_NS = 2 * NS_PER_S
ANCHOR_PERIOD_NS = 60 * NS_PER_S
STILL_S = 10  # without a beat of the drain in the ring: worth a line


class Journal:
    """Makes events, prints on stderr what a person should see at once, and tells findings.

    Attributes:
        waiting: records for the next batch that are in no ring.
        send: takes lines for the console and stderr.
        tell: takes each finding, before it is in the run file.
    """

    def __init__(self, send: Send, position: Callable[[], int], with_tracebacks: bool) -> None:
        """`position`: the last finished iteration."""
        self.waiting: list[Record] = []
        self.send = send
        self.tell: Callable[[FindingRecord], None] = lambda finding: None
        self._position = position
        self._with_tracebacks = with_tracebacks

    def report(self, name: str, text: str) -> None:
        """Records an event; a failure goes to stderr, too."""
        self.waiting.append(self.event(name, text))
        if name == "failure":
            self.complain(text, *traceback_lines(self._with_tracebacks))

    def complain(self, text: str, *more: str) -> None:
        """Prints lines on stderr."""
        for line in (live(f"flagscale_perf: {text}"), *more):
            self.send(Trouble(line))

    def event(self, name: str, text: str) -> EventRecord:
        """An event at this moment, of the last finished iteration."""
        return EventRecord(name, monotonic_ns(), self._position(), text)

    def recorded(self, entries: Iterable[Entry]) -> list[Record]:
        """The entries with an event in the place of each remark, and behind each finding."""
        return [record for entry in entries for record in self._recorded(entry)]

    def take(self) -> list[Record]:
        """The records that wait to be written; they wait no longer."""
        waiting, self.waiting = self.waiting, []
        return waiting

    def _recorded(self, entry: Entry) -> Iterator[Record]:
        if isinstance(entry, FindingRecord):
            now_ns, said = entry.at_ns or monotonic_ns(), FINDINGS[entry.finding]
            entry = replace(entry, at_ns=now_ns, iteration=entry.iteration or self._position())
            self.tell(entry)
            yield entry
            if entry.is_logged:
                if said.is_urgent:
                    self.complain(entry.text)
                yield EventRecord(said.event, now_ns, entry.iteration, entry.text)
        elif isinstance(entry, Remark):
            if entry.is_urgent:
                self.complain(entry.text)
            yield self.event(entry.name, entry.text)
        else:
            yield entry


class Notices:
    """Looks once a cycle, and puts what it sees into the journal.

    Attributes:
        pulse: shows the trainer that the drain gets on.
        notifier: tells findings.
    """

    def __init__(self, ring: AnyRing, anchor: Anchor, journal: Journal, notifier: Notifier) -> None:
        self._ring = ring
        self._anchor = anchor
        self._journal = journal
        self.pulse, self.notifier = Pulse(ring), notifier
        self._has_complained_of_drops = False
        self._next_drop_notice = 1
        self._clock_offset_ns = 0
        self._anchored_ns = anchor.mono_ns

    def look(self) -> None:
        """Checks everything that is worth a notice."""
        self.beat()
        self._clock()
        self._drops()
        for failure in self.notifier.look():
            self._journal.report("failure", failure)

    def beat(self) -> None:
        """Shows that the writer gets on. If it had not for long (the trainer warned), records that."""
        if (stood_s := self.pulse.beat()) is not None:
            why = (
                "others took its CPU" if self.pulse.starved else "its disk did not answer, or it was stopped"
            )
            text = f"the writer was blocked for {stood_s:.0f} s: {why}"
            self._journal.waiting.append(self._journal.event("failure", text))

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
            text = f"{dropped} records lost so far: {OVERFLOW}"
            self._journal.report("drop", text)
            if not self._has_complained_of_drops:
                self._has_complained_of_drops = True
                self._journal.complain(text)


class RunDelay:
    """For how long a thread waits for a CPU, from one question to the next."""

    def __init__(self, task: str) -> None:
        """`task`: as `cpu_wait_ns` has it."""
        self._task, self._waited_ns = task, cpu_wait_ns(task)

    def is_most_of(self, passed_ns: int) -> bool:
        """Whether it has waited for more than half of this time; not where the system does not say."""
        before, now = self._waited_ns, cpu_wait_ns(self._task)
        self._waited_ns = now
        return before is not None and now is not None and 2 * (now - before) > passed_ns


class Pulse:
    """The drain's side of the heartbeat that the trainer watches.

    Attributes:
        starved: whether it spent most of the time before its last beat waiting for a CPU.
    """

    def __init__(self, ring: AnyRing) -> None:
        self.starved = False
        self._delay = RunDelay("thread-self")
        self._ring = ring
        self._last_ns = monotonic_ns()
        self._least_ns = STILL_S * NS_PER_S

    def go_on(self) -> None:
        """Beats within work that takes its time."""
        self._ring.beat()
        self._last_ns = monotonic_ns()

    def beat(self) -> float | None:
        """Beats. Returns the seconds since the last beat if they are many, and at least twice as many as were
        returned last; None otherwise.
        """
        stood_ns = monotonic_ns() - self._last_ns
        self.starved = self._delay.is_most_of(stood_ns)
        self.go_on()
        if stood_ns < self._least_ns:
            return None
        self._least_ns = 2 * stood_ns
        return stood_ns / NS_PER_S
