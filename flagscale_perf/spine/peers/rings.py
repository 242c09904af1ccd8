"""The rings of all processes of a job as one: what the writer of such a job drains."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.peers.handover import Door, Source, Visitor
from flagscale_perf.spine.records import KILLED
from flagscale_perf.spine.ring import Ring, RingEnd

LINGER_NS = 3 * NS_PER_S  # after the last process: the next one of the job may come


class Slot(NamedTuple):
    """A record and where it comes from. One without a record comes before a process's first, and one, with
    the process's `end` set, after its last.
    """

    source: Source
    record: Any


AnyRing: TypeAlias = "Ring | Rings"  # what a writer drains


class Rings:
    """The consumer's end of all rings, with the methods that `Ring` has for it. Every `take` is followed by
    one `commit` of all that it returned.
    """

    def __init__(
        self,
        door: Door,
        on_come: Callable[[Source], None],
        on_end: Callable[[Source], None],
        clock: Callable[[], int] = monotonic_ns,
    ) -> None:
        """`on_come` is called for each process, `on_end` when nothing of it is left to take; it gives the
        connection back.
        """
        self._door: Door | None = door
        self._on_come, self._on_end = on_come, on_end
        self._clock = clock
        self._members: list[_Member] = []
        self._taken: list[tuple[_Member, int]] = []
        self._session: str | None = None
        self._trouble = ""
        self._alone_since_ns = clock()
        self._reason = KILLED
        self._gone_dropped = 0
        self.beats = 0
        self.moves = 0  # who came or went, and records that are safe; stands still where nothing gets done
        self.summary: str | None = None

    def receive(self) -> bool:
        """Receives new processes; whether there are any, new or not."""
        if self._door is not None:
            for visitor in self._door.visitors():
                with contextlib.suppress(OSError, ValueError, struct.error):
                    self._members.append(self._welcome(visitor))
                    self.moves += 1
        return bool(self._members)

    @property
    def is_deserted(self) -> bool:
        """Whether every process that came is over, its records taken or not; asked on any thread."""
        with contextlib.suppress(ValueError):  # a ring has just been given back
            return all(member.source.why_over() is not None for member in list(self._members))
        return False

    @property
    def is_empty(self) -> bool:
        """Whether no records wait to be taken and given back; asked on any thread."""
        with contextlib.suppress(ValueError):  # a ring has just been given back
            return all(member.source.ring.is_empty for member in list(self._members))
        return False

    def take(self, limit: int) -> list[Slot]:
        """The oldest records of each process, at most `limit`."""
        self.receive()
        self._taken = []
        slots: list[Slot] = []
        for member in self._members:
            slots += self._of(member, limit - len(slots))
        self._members = self._members[1:] + self._members[:1]  # none is always last
        return slots

    def behind(self, count: int) -> list[Slot]:
        """All records but those last taken, which are safe elsewhere."""
        if count:
            self.commit(count)
        return self.take(sum(member.source.ring.slots for member in self._members) + 2 * len(self._members))

    def commit(self, count: int) -> None:
        """Tells the rings that what the last `take` returned is safe."""
        taken, self._taken = self._taken, []
        for member, records in taken:
            member.source.ring.commit(records)
            self.moves += records
            if member.is_over:
                self._part(member)

    def beat(self) -> None:
        """Shows progress, as `Ring.beat` does for one ring."""
        self.beats += 1

    @property
    def dropped(self) -> int:
        """Records that the rings had no room for."""
        return self._gone_dropped + sum(member.source.ring.dropped for member in self._members)

    @property
    def end(self) -> RingEnd | None:
        """Set once every process has been gone for `LINGER_NS`; from then on new ones are refused."""
        if self._door is None:
            return None if self._members else RingEnd(self._reason, self._alone_since_ns)
        if self._members or self._clock() - self._alone_since_ns < LINGER_NS:
            return None
        self._door.shut()
        is_empty = not self.receive()
        self._door.close()
        self._door = None
        self.moves += 1
        return RingEnd(self._reason, self._alone_since_ns) if is_empty else None

    @property
    def session(self) -> str | None:
        """The session of this writer or, in the rings, of the one before it."""
        held = (member.source.ring.session for member in self._members)
        return self._session or next(filter(None, held), None)

    @session.setter
    def session(self, session_id: str) -> None:
        self._session = session_id
        for member in self._members:
            member.source.ring.session = session_id

    @property
    def trouble(self) -> str:
        """What the writer cannot write now, and why."""
        return self._trouble

    @trouble.setter
    def trouble(self, text: str) -> None:
        self._trouble = text
        for member in self._members:
            member.source.ring.trouble = text

    def _welcome(self, visitor: Visitor) -> _Member:
        """Raises OSError, ValueError or struct.error for what is no ring."""
        source = Source(visitor)
        if self._session is not None:
            source.ring.session = self._session
        if self._trouble:
            source.ring.trouble = self._trouble
        self._on_come(source)
        return _Member(source)

    def _of(self, member: _Member, limit: int) -> Iterator[Slot]:
        """The slots of one process, in order: its arrival, its records, its end."""
        if limit <= 1:
            return
        source = member.source
        why = source.why_over()
        records = source.ring.take(limit - 1)
        if not records and why is None:
            return
        if not member.has_come:
            member.has_come = True
            yield Slot(source, None)
        elif not records:
            source.end, member.is_over = why, True
            yield Slot(source, None)
        yield from (Slot(source, record) for record in records)
        self._taken.append((member, len(records)))

    def _part(self, member: _Member) -> None:
        source = member.source
        self._on_end(source)
        self._members.remove(member)
        self.moves += 1
        self._alone_since_ns = self._clock()
        self._gone_dropped += source.ring.dropped
        if source.ring.end is not None:
            self._reason = source.ring.end.reason
        source.release()


class _Member:
    """A source, and how far it has got."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.has_come = self.is_over = False
