"""The processes of one node: their rings received and drained into folds, their deaths noticed."""

from __future__ import annotations

import contextlib
import json
import os
import select
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple

from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S, monotonic_ns
from flagscale_perf.spine.peers.handover import Door, Source
from flagscale_perf.spine.peers.kind import Fold, Item, Owner, PeerKind

SILENCE_NS = 60 * NS_PER_S  # from then on an expected process that has not come is missing
GRACE_NS = 300 * NS_PER_MS  # a process has from the opening of the door to come, where the job ends sooner
RETRY_S = 0.01


class Gone(NamedTuple):
    """A process that has died.

    Attributes:
        name: among the job's members.
        position: how far it had got, see `Fold`.
        why: one phrase.
    """

    name: str
    position: int
    why: str


@dataclass
class News(Generic[Owner, Item]):
    """What has changed among the processes since the last call.

    Attributes:
        owners: the processes found since.
        items: results of the folds, in order for each process.
        gone: those that have died.
        notes: (name, what there is to report about it), each trouble once.
    """

    owners: list[Owner] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    gone: list[Gone] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)


class _Member(Generic[Owner, Item]):
    """One process of the node."""

    def __init__(self, name: str, source: Source, fold: Fold[Item]) -> None:
        self.name = name
        self.source = source
        self.fold = fold
        self.is_over = False
        self._has_reported_drops = False

    def drain(self) -> list[Item]:
        """Takes the records out of the ring; returns the items that they complete."""
        ring = self.source.ring
        records = ring.take(ring.slots)
        ring.commit(len(records))
        return self.fold.take(records)

    def notes(self) -> list[tuple[str, str]]:
        """Reports about the process since the last call, each with the process's name."""
        notes, dropped = self.fold.notes(), self.source.ring.dropped
        if dropped and not self._has_reported_drops:
            self._has_reported_drops = True
            lost = f"{dropped} of its records are lost, and perhaps more later"
            notes.append(f"{lost}: more came than was read")
        return [(self.name, note) for note in notes]


class _Leader:
    """The process whose end ends the job. Who ends before it has died; a launcher ends the others with it.

    The kernel queues ends in their order, so that both may lie in the past when they are looked at.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ends = select.epoll()
        self._own: int | None = None
        self._is_gone = False
        self._earlier: set[int] = set()
        with contextlib.suppress(AttributeError, OSError):  # an old kernel, or it has ended
            self._own = os.pidfd_open(pid)
            self.watch(self._own)

    def watch(self, process: int | None) -> None:
        """Takes in the end of a process, given its descriptor, which stays the caller's."""
        if process is not None:
            self._earlier.discard(process)  # the number of one that was closed
            self._ends.register(process, select.EPOLLIN | select.EPOLLONESHOT)

    def outlived(self, process: int | None) -> bool:
        """Whether a process that has ended did so before this one; forgets it."""
        if self._own is None or process is None:
            return os.getppid() == self._pid
        for fd, _ in self._ends.poll(0):
            self._is_gone = self._is_gone or fd == self._own
            if not self._is_gone:
                self._earlier.add(fd)
        is_earlier = process in self._earlier
        self._earlier.discard(process)
        return is_earlier

    def close(self) -> None:
        """Releases the descriptors."""
        self._ends.close()
        if self._own is not None:
            os.close(self._own)


class Node(Generic[Owner, Item]):
    """The other processes of this node, as the one that drains them knows them."""

    def __init__(
        self,
        kind: PeerKind[Owner, Item],
        key: str,
        expected: int | None,
        since_ns: int,
        watch: Callable[[int], None],
    ) -> None:
        """`key`: with which they hand their rings over.

        `expected`: how many; None where unknown. Rings closed before the monotonic mark `since_ns` are of an
        earlier job. `watch` is given descriptors that become readable when a process ends.
        """
        self._kind, self._fold = kind, kind.folds()
        self._key = key
        self._expected = expected
        self._since_ns = since_ns
        self._watch = watch
        self._leader: _Leader | None = None
        self._door: Door | None = None
        self._opened_ns: int | None = None
        self._members: dict[str, _Member[Owner, Item]] = {}
        self._request: Any = None

    def be_led(self, leader: int) -> None:
        """Called first: who ends after this process, the parent of this one, has not died."""
        self._leader = _Leader(leader)

    def request(self, content: Any) -> None:
        """Passes a request on to every fold, also to those of processes that come later."""
        self._request = content
        for member in self._members.values():
            member.fold.request(content)

    @property
    def missing(self) -> int:
        """Expected processes that have not come in all this time."""
        return self._lacking if self._is_open_for(SILENCE_NS) else 0

    @property
    def is_over(self) -> bool:
        """Whether every process that has come has ended or died."""
        return all(member.is_over for member in self._members.values())

    def cycle(self) -> News[Owner, Item]:
        """Drains every process once."""
        news: News[Owner, Item] = News()
        self._cycle(news)
        return news

    def close(self) -> News[Owner, Item]:
        """Takes what is left of every process; none may arrive after that."""
        news: News[Owner, Item] = News()
        self._cycle(news, is_last=True)
        begun_ns = monotonic_ns()
        while (self._lacking and not self._is_open_for(GRACE_NS)) or (
            self._is_any_dying and monotonic_ns() - begun_ns < GRACE_NS
        ):
            time.sleep(RETRY_S)
            self._cycle(news, is_last=True)
        if self._door is not None:
            self._door.close()
        for member in self._members.values():
            self._end(member, news)
        if self._leader is not None:
            self._leader.close()
        return news

    @property
    def _is_any_dying(self) -> bool:
        """Whether the system is taking a process down: what fails by its death may end before it."""
        members = self._members.values() if self._leader is not None else ()
        return any(member.source.is_cut_off for member in members if not member.is_over)

    @property
    def _lacking(self) -> int:
        return max(0, (self._expected or 0) - len(self._members))

    def _is_open_for(self, duration_ns: int) -> bool:
        return self._opened_ns is not None and monotonic_ns() - self._opened_ns > duration_ns

    def _cycle(self, news: News[Owner, Item], is_last: bool = False) -> None:
        for owner, source in self._arrivals():
            name, fold = self._kind.name_of(owner), self._fold(owner)
            fold.meet(source)
            if self._request is not None:
                fold.request(self._request)
            news.owners.append(owner)
            self._members[name] = _Member(name, source, fold)
            self._watch_end(source)
        for member in self._members.values():
            if not member.is_over:
                self._take(member, news, is_last)

    def _arrivals(self) -> Iterator[tuple[Owner, Source]]:
        """The processes that handed their rings over since the last call. They wait while an earlier writer
        of the job has the door, or no descriptor is left.
        """
        if self._opened_ns is None:
            self._opened_ns = monotonic_ns()
        if self._door is None:
            with contextlib.suppress(OSError):
                self._door = Door.open(self._key)
        for visitor in () if self._door is None else self._door.visitors():
            with contextlib.suppress(OSError, ValueError, struct.error):  # no ring
                source = Source(visitor)
                owner = self._owner_of(source)
                if owner is not None:
                    yield owner, source

    def _owner_of(self, source: Source) -> Owner | None:
        """None for a ring of an earlier job, which is sent away, and one with the name of another, which may
        come again: it is perhaps the next job's.
        """
        end, owner = source.ring.end, None
        with contextlib.suppress(ValueError, RecursionError):
            owner = self._kind.decode_owner(json.loads(source.ring.producer or ""))
        if owner is None or (end is not None and end.at_ns < self._since_ns):
            _part(source)
            return None
        if self._kind.name_of(owner) in self._members:
            _let_go(source)
            return None
        return owner

    def _take(self, member: _Member[Owner, Item], news: News[Owner, Item], is_last: bool) -> None:
        why = member.source.why_over()
        news.items += member.drain()
        news.notes += member.notes()
        if why is None:
            return
        has_ended = member.source.ring.end is not None
        has_died = not has_ended and self._has_died(member, is_last)
        if has_died:
            news.gone.append(Gone(member.name, member.fold.position, why))
        if has_ended or has_died:
            self._end(member, news)

    def _has_died(self, member: _Member[Owner, Item], is_last: bool) -> bool:
        """Whether one that is gone has died, not ended with the job."""
        return not is_last if self._leader is None else self._leader.outlived(member.source.process)

    def _end(self, member: _Member[Any, Item], news: News[Any, Item]) -> None:
        if not member.is_over:
            member.is_over = True
            news.items += member.fold.close()
            _part(member.source)

    def _watch_end(self, source: Source) -> None:
        """So that a death is noticed at once, before the launcher ends the rest; without pidfd_open (an old
        kernel) it is noticed in the next cycle.
        """
        if self._leader is not None:
            self._leader.watch(source.process)
        with contextlib.suppress(AttributeError, OSError):
            self._watch(os.pidfd_open(source.pid))


def _part(source: Source) -> None:
    """Lets the process know that its ring is not needed any more."""
    with contextlib.suppress(OSError):  # it is gone
        os.write(source.connection, b"\n")
    _let_go(source)


def _let_go(source: Source) -> None:
    os.close(source.connection)
    source.release()
