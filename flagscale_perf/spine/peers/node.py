"""The processes of one node: found, drained into folds, their deaths noticed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple

from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.peers.kind import Fold, Item, Owner, PeerKind
from flagscale_perf.spine.peers.search import Peer, Search

KILLED = "its process has ended without a word"


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
    """What is new of the processes.

    Attributes:
        owners: of those found now.
        items: what the folds have made, in order for each process.
        gone: those that have died.
        notes: (name, what there is to report about it), each trouble once.
    """

    owners: list[Owner] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    gone: list[Gone] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)


class _Member(Generic[Owner, Item]):
    """One process of the node."""

    def __init__(self, peer: Peer[Owner], fold: Fold[Item]) -> None:
        self.peer = peer
        self.fold = fold
        self.is_over = False
        self._has_reported_drops = False

    def notes(self) -> list[tuple[str, str]]:
        """What to report about the process since the last call, by its name."""
        notes = self.fold.notes()
        if self.peer.dropped and not self._has_reported_drops:
            self._has_reported_drops = True
            lost = f"{self.peer.dropped} of its records are lost, and perhaps more later"
            notes.append(f"{lost}: more came than was read")
        return [(self.peer.name, note) for note in notes]


class Node(Generic[Owner, Item]):
    """The other processes of this node, as the one that drains them knows them."""

    def __init__(
        self, kind: PeerKind[Owner, Item], search: Search[Owner], watch: Callable[[int], None]
    ) -> None:
        """`watch` is given descriptors that become readable when a process ends."""
        self._kind = kind
        self._search = search
        self._watch = watch
        self._members: list[_Member[Owner, Item]] = []
        self._request: Any = None

    def request(self, content: Any) -> None:
        """Passes a request on to every fold, also to those of processes found later."""
        self._request = content
        for member in self._members:
            member.fold.request(content)

    @property
    def missing(self) -> int:
        """Expected processes that have not been found and are not looked for any more."""
        return self._search.missing if self._search.is_over else 0

    @property
    def is_over(self) -> bool:
        """Whether every process that was found has ended or died."""
        return all(member.is_over for member in self._members)

    def cycle(self, counts_dead: bool) -> News[Owner, Item]:
        """What is new. `counts_dead`: a process that is gone now has died, and not ended with the job."""
        news: News[Owner, Item] = News()
        for peer in self._search.look(monotonic_ns()):
            news.owners.append(peer.owner)
            fold = self._kind.fold(peer.owner)
            if self._request is not None:
                fold.request(self._request)
            self._members.append(_Member(peer, fold))
            self._watch_end(peer)
        for member in self._members:
            if not member.is_over:
                self._take(member, news, counts_dead)
        return news

    def close(self) -> News[Owner, Item]:
        """What is left of every process."""
        news = self.cycle(counts_dead=False)
        for member in self._members:
            self._end(member, news)
        return news

    def _take(self, member: _Member[Owner, Item], news: News[Owner, Item], counts_dead: bool) -> None:
        # Before the ring is drained and in this order: a process that is gone stores nothing any more, and
        # one that closes its ring meanwhile has not died.
        is_running, has_ended = member.peer.is_running(), member.peer.has_ended
        news.items += member.fold.take(member.peer.drain())
        news.notes += member.notes()
        if has_ended or (not is_running and counts_dead):
            self._end(member, news)
        if not has_ended and not is_running and counts_dead:
            news.gone.append(Gone(member.peer.name, member.fold.position, KILLED))

    def _end(self, member: _Member[Any, Item], news: News[Any, Item]) -> None:
        if not member.is_over:
            member.is_over = True
            news.items += member.fold.close()
            member.peer.release()

    def _watch_end(self, peer: Peer[Owner]) -> None:
        """So that a death is noticed at once, before the launcher ends the rest; without pidfd_open (an old
        kernel) it is noticed in the next cycle.
        """
        with contextlib.suppress(AttributeError, OSError):
            self._watch(os.pidfd_open(peer.pid))
