"""The ranks of one node that are other processes: found, drained and folded into blocks; their devices read,
their deaths noticed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from flagscale_perf.device.sampler import Sampler
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.training.ranks.blocks import Block, BlockBuilder, RankIdentity
from flagscale_perf.training.ranks.neighbours import Neighbour, Search

KILLED = "its process has ended without a word"


class Gone(NamedTuple):
    """A rank that has died.

    Attributes:
        rank: its number.
        iteration: the last one it told of.
        why: one phrase.
    """

    rank: int
    iteration: int
    why: str


@dataclass
class News:
    """What is new of a node's ranks.

    Attributes:
        identities: of ranks found now.
        blocks: of any of its ranks, in the order of each rank's iterations.
        gone: ranks that have died.
        notes: (rank, what there is to say), each trouble once.
    """

    identities: list[RankIdentity] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    gone: list[Gone] = field(default_factory=list)
    notes: list[tuple[int, str]] = field(default_factory=list)


class _Member:
    """One rank of the node."""

    def __init__(self, neighbour: Neighbour, sampler: Sampler | None) -> None:
        self.neighbour = neighbour
        self.builder = BlockBuilder(neighbour.identity.rank)
        self.sampler = sampler
        self.is_over = False


class Node:
    """What one process (rank 0's writer, or another node's collector) knows of the ranks beside it."""

    def __init__(self, search: Search, watch: Callable[[int], None], reads_devices: bool = True) -> None:
        """`watch` is given a descriptor that becomes readable when a process ends; `reads_devices`: also
        their counters.
        """
        self._search = search
        self._watch = watch
        self._reads_devices = reads_devices
        self._members: list[_Member] = []

    @property
    def missing(self) -> int:
        """Expected ranks that have not been found and are not looked for any more."""
        return self._search.missing if self._search.is_over else 0

    @property
    def is_over(self) -> bool:
        """Every rank that was found has ended or died."""
        return all(member.is_over for member in self._members)

    def cycle(self, counts_dead: bool) -> News:
        """Takes what there is. `counts_dead`: a rank that is gone now has died, and not ended with the
        job.
        """
        news = News()
        for neighbour in self._search.look(monotonic_ns()):
            news.identities.append(neighbour.identity)
            self._members.append(_Member(neighbour, self._sampler(neighbour.identity)))
            self._watch_end(neighbour)
        for member in self._members:
            if not member.is_over:
                self._take(member, news, counts_dead)
        return news

    def close(self) -> News:
        """The last of everybody."""
        news = self.cycle(counts_dead=False)
        for member in self._members:
            self._end(member, news)
        return news

    def _take(self, member: _Member, news: News, counts_dead: bool) -> None:
        rank = member.neighbour.identity.rank
        # Asked before the ring is emptied, and in this order: what a process that is gone has not said by
        # now, it never will.
        is_running, has_ended = member.neighbour.is_running(), member.neighbour.has_ended
        told = member.neighbour.drain()
        readings, remarks = member.sampler.take() if member.sampler is not None else ([], [])
        for reading in readings:
            member.builder.add_reading(reading)
        for step, phases in told.steps:
            if (block := member.builder.add(step, phases)) is not None:
                news.blocks.append(block)
        news.notes += [(rank, text) for text in [*told.notes, *remarks]]
        if has_ended or (not is_running and counts_dead):
            self._end(member, news)
        if not has_ended and not is_running and counts_dead:
            news.gone.append(Gone(rank, member.neighbour.iteration, KILLED))

    def _end(self, member: _Member, news: News) -> None:
        if member.is_over:
            return
        member.is_over = True
        if (block := member.builder.close()) is not None:
            news.blocks.append(block)
        if member.sampler is not None:
            member.sampler.stop()
        member.neighbour.release()

    def _sampler(self, identity: RankIdentity) -> Sampler | None:
        if identity.device_uuid is None or not self._reads_devices:
            return None
        sampler = Sampler(identity.device_uuid)
        sampler.start()
        return sampler

    def _watch_end(self, neighbour: Neighbour) -> None:
        """So that a death is noticed at once, before the launcher ends the rest; where the system cannot, a
        moment later.
        """
        with contextlib.suppress(AttributeError, OSError):
            self._watch(os.pidfd_open(neighbour.identity.pid))
