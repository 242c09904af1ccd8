"""Rank 0's own steps and those of all other ranks, brought together for the run file."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flagscale_perf.spine.clock import NS_PER_MS, monotonic_ns
from flagscale_perf.spine.peers.node import RETRY_S, Node
from flagscale_perf.spine.records import Record
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.ledger.cuts import StepCuts
from flagscale_perf.training.ledger.naming import LIVE
from flagscale_perf.training.phases import StepPhases
from flagscale_perf.training.ranks.blocks import Block, BlockBuilder, RankIdentity
from flagscale_perf.training.ranks.gatherer import Gathered, Gatherer
from flagscale_perf.training.ranks.kept import KeptBlocks
from flagscale_perf.training.ranks.kind import RANKS, RANKS_WITHOUT_DEVICES, RankItem
from flagscale_perf.training.ranks.machine import Machine
from flagscale_perf.training.ranks.place import Place
from flagscale_perf.training.ranks.view import RanksView
from flagscale_perf.training.records import HardwareRecord, HostRecord, IntervalRecord, StepRecord

# At the end of a job that was cut off, until who is gone is known: less than its process waits for its files.
LOSS_NS = 1500 * NS_PER_MS

RankNode = Node[RankIdentity, RankItem]


@dataclass(frozen=True)
class Job:
    """The training whose ranks are gathered.

    Attributes:
        place: rank 0's.
        identity: rank 0's.
        facts: of the run.
        directory: of the run's files.
        kept: where blocks stay as they were sent.
        least_late: share of a step from which a rank is late.
    """

    place: Place
    identity: RankIdentity
    facts: RunFacts
    directory: Path
    kept: KeptBlocks
    least_late: float = LIVE.value


def node_of(
    place: Place, since_ns: int, leader: int, watch: Callable[[int], None], reads_devices: bool
) -> RankNode:
    """The ranks beside rank 0, whose process is `leader` and whose training began at the monotonic mark
    `since_ns`; `watch` is given descriptors that become readable when one of them ends.
    """
    kind = RANKS if reads_devices else RANKS_WITHOUT_DEVICES
    expected = None if place.local_world_size is None else place.local_world_size - 1
    node = Node(kind, place.node_key, expected, since_ns, watch)
    node.be_led(leader)
    return node


class Gathering:
    """All ranks over a whole training; no method raises or blocks for long.

    A failure in here is reported once and ends the gathering, not the recording of rank 0.
    """

    def __init__(self, job: Job, node: RankNode) -> None:
        """`node` of the ranks beside rank 0."""
        self._job = job
        self._gatherer = Gatherer(job.place, job.directory, job.kept, node)
        self._view = RanksView(job.facts, least=job.least_late)
        self._machine = Machine(job.facts.world_size)
        self._machine.join(job.identity)
        self._builder = BlockBuilder(job.identity.rank, self._machine.steps)
        self._requests: dict[str, Any] = {}
        self._records: list[Record] = []
        self._notes: list[str] = []
        self._cut_off = ""
        self._has_begun = self._has_lost = self._is_over = False

    def step(self, step: StepRecord, phases: StepPhases | None, cuts: StepCuts | None) -> None:
        """One more step of rank 0."""
        self._guarded(lambda: self._step(step, phases, cuts))

    def reading(self, reading: HardwareRecord | HostRecord) -> None:
        """One more reading of rank 0's device or host."""
        self._guarded(lambda: self._builder.add_reading(reading))

    def interval(self, interval: IntervalRecord) -> list[Record]:
        """Records that follow this interval in the run file."""
        found: list[Record] = []
        self._guarded(lambda: found.extend(self._view.summary_due(interval)))
        return found

    def request(self, content: Mapping[str, Any]) -> None:
        """Asks all other ranks' folds for something, beside what they were asked for under other keys; see
        `training.capture` and `training.ranks.inquiry`.
        """
        self._requests = {**self._requests, **content}
        self._guarded(lambda: self._gatherer.request(self._requests))

    def cut_off(self, why: str) -> None:
        """Rank 0 has ended because another rank has closed its connection, as `why` says."""
        self._cut_off = why

    def take(self) -> tuple[list[Record], list[str]]:
        """New records of all ranks, and remarks about gathering them."""
        self._guarded(self._look)
        return self._taken()

    def close(self) -> tuple[list[Record], list[str]]:
        """The same at the end of the session; where rank 0 was cut off, it waits a moment for who is gone."""
        self._guarded(self._find_lost)
        self._guarded(self._finish)
        self._is_over = True
        return self._taken()

    def _guarded(self, action: Callable[[], None]) -> None:
        if self._is_over:
            return
        try:
            action()
        except Exception as error:  # whatever it is: the recording of rank 0 goes on without the other ranks
            self._is_over = True
            reason = f"{type(error).__name__}: {error}"
            self._notes.append(f"nothing is recorded of other ranks any more: {reason}")

    def _taken(self) -> tuple[list[Record], list[str]]:
        found = self._records, self._notes
        self._records, self._notes = [], []
        return found

    def _step(self, step: StepRecord, phases: StepPhases | None, cuts: StepCuts | None) -> None:
        self._machine.step(self._job.identity.rank, cuts)
        self._add_own(self._builder.add(step, phases))

    def _add_own(self, block: Block | None) -> None:
        if block is not None:
            whole = self._machine.block(block)
            self._job.kept.add_items([whole])
            self._notes += self._job.kept.flush()  # a writer that goes on does not see these steps again
            self._records += self._view.add(whole)

    def _look(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._records += self._view.join([self._job.identity])
        self._add(self._gatherer.take())
        self._notes += self._job.kept.flush()

    def _find_lost(self) -> None:
        until_ns = monotonic_ns() + LOSS_NS
        while self._cut_off and not self._has_lost:
            self._look()
            if monotonic_ns() >= until_ns:
                self._has_lost = True
                self._records.append(self._view.vanished(self._cut_off))
            time.sleep(RETRY_S)

    def _finish(self) -> None:
        self._add(self._gatherer.close())
        self._add_own(self._builder.close())
        self._records += self._view.close()
        self._notes += self._job.kept.close()

    def _add(self, new: Gathered) -> None:
        size = self._job.place.world_size
        if owners := [owner for owner in new.owners if owner.rank < size]:
            self._records += self._view.join(owners)
        for item in new.items:
            self._records += self._view.add(item) if isinstance(item, Block) else [item]
        for each in new.gone:
            if (rank := int(each.name)) < size:
                self._has_lost = True
                self._records += self._view.lost(rank, each.position, each.why)
        self._notes += new.notes
