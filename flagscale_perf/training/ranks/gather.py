"""Rank 0's side: its own steps, the ranks of its node and the files of the other nodes, brought together for
the run file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S, monotonic_ns
from flagscale_perf.training.phases import StepPhases
from flagscale_perf.training.ranks.blocks import BlockBuilder, RankIdentity
from flagscale_perf.training.ranks.exchange import Heard, Inbox
from flagscale_perf.training.ranks.node import Gone, News, Node
from flagscale_perf.training.ranks.place import Place
from flagscale_perf.training.ranks.view import RanksView
from flagscale_perf.training.records import HardwareRecord, IntervalRecord, Record, StepRecord

LOOK_NS = 15 * NS_PER_MS  # of every half second; with what is then made of it, about one twentieth of a core
LAST_LOOK_NS = 500 * NS_PER_MS
SILENCE_NS = 60 * NS_PER_S  # from then on, nodes that nobody has heard of are worth a line
MAX_NOTES = 64


@dataclass(frozen=True)
class Job:
    """What a gathering is about.

    Attributes:
        place: rank 0's.
        identity: rank 0's.
        facts: of the run header.
        directory: of the monitor's files.
    """

    place: Place
    identity: RankIdentity
    facts: Mapping[str, Any]
    directory: Path


class Gathering:
    """`training.sources.RankSource` over a whole job.

    Behind a wall of its own: what goes wrong here is said once and ends the gathering, not the recording.
    """

    def __init__(self, job: Job, node: Node, is_alive: Callable[[], bool]) -> None:
        """`is_alive`: whether rank 0's training process is there."""
        self._job = job
        self._node = node
        self._is_alive = is_alive
        self._view = RanksView(job.facts)
        self._builder = BlockBuilder(job.identity.rank)
        self._inbox: Inbox | None = None
        self._records: list[Record] = []
        self._notes: list[str] = []
        self._told: set[str] = set()
        self._met: set[int] = set()
        self._gone: set[int] = set()
        self._start_ns: int | None = None
        self._is_over = self._has_told_silence = self._has_told_missing = self._is_deaf = False

    def step(self, step: StepRecord, phases: StepPhases | None) -> None:
        """One more step of rank 0."""
        self._walled(lambda: self._step(step, phases))

    def reading(self, reading: HardwareRecord) -> None:
        """One more reading of rank 0's device."""
        self._walled(lambda: self._builder.add_reading(reading))

    def interval(self, interval: IntervalRecord) -> list[Record]:
        """What is to stand behind this interval."""
        found: list[Record] = []
        self._walled(lambda: found.extend(self._view.summary_due(interval)))
        return found

    def take(self) -> tuple[list[Record], list[str]]:
        """What is new of all ranks, and what there is to say about hearing of them."""
        self._walled(self._look)
        return self._emptied()

    def close(self) -> tuple[list[Record], list[str]]:
        """The same at the end of the session."""
        self._walled(self._finish)
        self._is_over = True
        return self._emptied()

    def _walled(self, action: Callable[[], None]) -> None:
        if self._is_over:
            return
        try:
            action()
        except Exception as error:  # whatever it is: the recording goes on without the other ranks
            self._is_over = True
            self._notes.append(
                f"nothing is recorded of other ranks any more: {type(error).__name__}: {error}"
            )

    def _emptied(self) -> tuple[list[Record], list[str]]:
        found = self._records, self._notes
        self._records, self._notes = [], []
        return found

    def _step(self, step: StepRecord, phases: StepPhases | None) -> None:
        if (block := self._builder.add(step, phases)) is not None:
            self._records += self._view.add(block)

    def _look(self) -> None:
        if self._start_ns is None:
            self._start_ns = monotonic_ns()
            self._meet([self._job.identity])
        self._take_node(self._node.cycle(counts_dead=self._is_alive()))
        if self._job.place.has_other_nodes:
            self._hear(lambda inbox: inbox.look(LOOK_NS))
        self._notice_silence(self._start_ns)

    def _finish(self) -> None:
        if self._is_alive():
            self._take_node(self._node.cycle(counts_dead=True))
        self._take_node(self._node.close())
        if self._inbox is not None:
            self._hear(lambda inbox: inbox.close(LAST_LOOK_NS))
        if (block := self._builder.close()) is not None:
            self._records += self._view.add(block)
        self._records += self._view.close()

    def _hear(self, look: Callable[[Inbox], Heard]) -> None:
        """The files of other nodes; what does not work is tried again in the next cycle."""
        place = self._job.place
        try:
            self._inbox = self._inbox or Inbox(self._job.directory, place.key, place.world_size)
            heard = look(self._inbox)
        except OSError as error:
            self._is_deaf = True
            self._tell(
                f"the ranks of other nodes are not heard: {type(error).__name__}: {error}; it is tried again all the time"
            )
            return
        if self._is_deaf:
            self._is_deaf = False
            self._tell("the ranks of other nodes are heard again")
        for report in heard.reports:
            self._meet(report.identities)
        for block in heard.blocks:
            self._records += self._view.add(block)
        for report in heard.reports:
            self._lose(report.gone)
            self._note(report.notes)
        for complaint in heard.complaints:
            self._tell(f"not all is known of the ranks of a node: {complaint}")

    def _take_node(self, news: News) -> None:
        self._meet(news.identities)
        for block in news.blocks:
            self._records += self._view.add(block)
        self._lose(news.gone)
        self._note(news.notes)

    def _meet(self, identities: Iterable[RankIdentity]) -> None:
        new = [
            each
            for each in identities
            if each.rank not in self._met and each.rank < self._job.place.world_size
        ]
        if new:
            self._met |= {each.rank for each in new}
            self._records += self._view.met(new)

    def _lose(self, gone: Iterable[Gone]) -> None:
        for rank, iteration, why in gone:
            if rank not in self._gone and rank in self._met:
                self._gone.add(rank)
                self._records += self._view.gone(rank, iteration, why)

    def _note(self, notes: Iterable[tuple[int, str]]) -> None:
        for rank, text in notes:
            self._tell(text, f"rank {rank}: ")

    def _tell(self, text: str, who: str = "") -> None:
        """Each text once, whoever says it first: what troubles one rank mostly troubles them all."""
        if text not in self._told and len(self._told) < MAX_NOTES:
            self._told.add(text)
            self._notes.append(f"{who}{text}")

    def _notice_silence(self, start_ns: int) -> None:
        if self._node.missing and not self._has_told_missing:
            self._has_told_missing = True
            self._tell(
                f"{self._node.missing} ranks of this node are silent: no process of this user that tells for them is to be seen in /proc"
            )
        place = self._job.place
        is_told = self._has_told_silence or self._is_deaf
        if is_told or not place.has_other_nodes or monotonic_ns() - start_ns < SILENCE_NS:
            return
        self._has_told_silence = True
        if silent := place.world_size - len(self._met) - self._node.missing:
            directory = self._job.directory
            self._tell(
                f"{silent} ranks of other nodes are silent: {directory} is perhaps not the same directory on every node"
            )
