"""The ranks of a training as processes that can be gathered: their identities, and blocks of their steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from flagscale_perf.device.sampler import Sampler
from flagscale_perf.spine.peers.kind import PeerKind
from flagscale_perf.spine.records import EventRecord
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.marks import MarksJoin
from flagscale_perf.training.phases import PhaseJoin
from flagscale_perf.training.ranks.blocks import (
    Block,
    BlockBuilder,
    RankIdentity,
    decode_block,
    encode_block,
)
from flagscale_perf.training.ranks.identity import content_of, identity_of
from flagscale_perf.training.records import PhaseRecord, StepRecord


class RankFold:
    """One rank's records as blocks; its device is read in this process.

    Attributes:
        position: its last iteration.
    """

    def __init__(self, identity: RankIdentity, reads_device: bool = True) -> None:
        self.position = 0
        self._marks = MarksJoin()
        self._phases = PhaseJoin(RunFacts.of({}))
        self._builder = BlockBuilder(identity.rank)
        self._notes: list[str] = []
        self._sampler: Sampler | None = None
        if identity.device_uuid is not None and reads_device:
            self._sampler = Sampler(identity.device_uuid)
            self._sampler.start()

    def take(self, records: Sequence[Any]) -> list[Block]:
        """Blocks that these records and the device's readings so far complete."""
        if self._sampler is not None:
            readings, remarks = self._sampler.take()
            self._notes += remarks
            for reading in readings:
                self._builder.add_reading(reading)
        blocks = [self._add(record) for slot in records for record in self._marks.take(slot)]
        return [block for block in blocks if block is not None]

    def notes(self) -> list[str]:
        """What the monitor in that process and the device's readings report."""
        notes, self._notes = self._notes, []
        return notes

    def close(self) -> list[Block]:
        """The block under way."""
        if self._sampler is not None:
            self._sampler.stop()
        block = self._builder.close()
        return [] if block is None else [block]

    def _add(self, record: Any) -> Block | None:
        if isinstance(record, StepRecord):
            self.position = record.iteration
            return self._builder.add(record, self._phases.take(record))
        if isinstance(record, PhaseRecord):
            self._phases.hold(record)
        elif isinstance(record, EventRecord):
            self._notes.append(record.text)
        return None


def _name_of(subject: RankIdentity | Block) -> str:
    return str(subject.rank)


RANKS = PeerKind(
    path=f"{__name__}:RANKS",
    noun="rank",
    encode_owner=content_of,
    decode_owner=identity_of,
    encode_item=encode_block,
    decode_item=decode_block,
    name_of=_name_of,
    fold=RankFold,
)
RANKS_WITHOUT_DEVICES = replace(RANKS, fold=partial(RankFold, reads_device=False))
