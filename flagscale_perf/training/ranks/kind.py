"""The ranks of a training as processes that can be gathered: their identities, and blocks of their steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from flagscale_perf.device.sampler import Sampler
from flagscale_perf.spine.jsonl import decode, dump
from flagscale_perf.spine.peers.kind import PeerKind
from flagscale_perf.spine.records import EventRecord, kind_of
from flagscale_perf.training.capture import Capture, window_of
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.ledger.cuts import CutKeeper
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
from flagscale_perf.training.records import CapturedRecord, PhaseRecord, StepRecord

RankItem = Block | CapturedRecord


class RankFold:
    """One rank's records as blocks; its device is read in this process.

    Attributes:
        position: its last iteration.
    """

    def __init__(self, identity: RankIdentity, reads_device: bool = True) -> None:
        self.position = 0
        self._capture = Capture(identity.rank)
        self._cuts = CutKeeper()
        self._marks = MarksJoin(self._capture.add, self._cuts.add)
        self._phases = PhaseJoin(RunFacts.of({}))
        self._builder = BlockBuilder(identity.rank)
        self._notes: list[str] = []
        self._sampler: Sampler | None = None
        if identity.device_uuid is not None and reads_device:
            self._sampler = Sampler(identity.device_uuid)
            self._sampler.start()

    def take(self, records: Sequence[Any]) -> list[RankItem]:
        """Blocks that these records and the device's readings so far complete; marks of a window."""
        if self._sampler is not None:
            readings, remarks = self._sampler.take()
            self._notes += remarks
            for reading in readings:
                self._builder.add_reading(reading)
        blocks = [self._add(record) for slot in records for record in self._marks.take(slot)]
        return [*(block for block in blocks if block is not None), *self._capture.take()]

    def request(self, content: Any) -> None:
        """Keeps the marks of the window asked for."""
        self._capture.window = window_of(content)

    def notes(self) -> list[str]:
        """What the monitor in that process and the device's readings report."""
        notes, self._notes = self._notes, []
        return notes

    def close(self) -> list[RankItem]:
        """The block under way."""
        if self._sampler is not None:
            self._sampler.stop()
        block = self._builder.close()
        return [] if block is None else [block]

    def _add(self, record: Any) -> Block | None:
        if isinstance(record, StepRecord):
            self.position = record.iteration
            return self._builder.add(record, self._phases.take(record), self._cuts.take(record.iteration))
        if isinstance(record, PhaseRecord):
            self._phases.hold(record)
        elif isinstance(record, EventRecord):
            self._notes.append(record.text)
        return None


def _name_of(subject: RankIdentity | RankItem) -> str:
    return str(subject.rank)


def _encode_item(item: RankItem) -> Any:
    return asdict(item) if isinstance(item, CapturedRecord) else encode_block(item)


def _decode_item(content: Any) -> RankItem:
    """Raises ValueError."""
    if not isinstance(content, dict):
        return decode_block(content)
    captured = decode(dump(content | {"kind": kind_of(CapturedRecord)}).encode())
    if not isinstance(captured, CapturedRecord) or len(captured.marks) % 2:
        raise ValueError("no marks of a step")
    return captured


RANKS = PeerKind(
    path=f"{__name__}:RANKS",
    noun="rank",
    encode_owner=content_of,
    decode_owner=identity_of,
    encode_item=_encode_item,
    decode_item=_decode_item,
    name_of=_name_of,
    fold=RankFold,
)
RANKS_WITHOUT_DEVICES = replace(RANKS, fold=partial(RankFold, reads_device=False))
