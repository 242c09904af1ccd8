"""The ranks of a training as processes that can be gathered: their identities, and blocks of their steps."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from flagscale_perf.device.sampler import Sampler
from flagscale_perf.spine.jsonl import MAX_NS, dump, recall
from flagscale_perf.spine.peers.handover import Source
from flagscale_perf.spine.peers.kind import PeerKind
from flagscale_perf.spine.records import EventRecord, kind_of
from flagscale_perf.training.capture import Capture, window_of
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.host import HostReader
from flagscale_perf.training.ledger.cuts import CutKeeper
from flagscale_perf.training.marks import MarksJoin
from flagscale_perf.training.phases import PhaseJoin
from flagscale_perf.training.rank_records import DoingRecord
from flagscale_perf.training.ranks.blocks import Block, BlockBuilder, RankIdentity, decode_block, encode_block
from flagscale_perf.training.ranks.identity import identity_of
from flagscale_perf.training.ranks.inquiry import Inquiry, doing_of
from flagscale_perf.training.ranks.machine import Machine
from flagscale_perf.training.ranks.place import Place
from flagscale_perf.training.records import CapturedRecord, PhaseRecord, StepRecord

RankItem = Block | CapturedRecord | DoingRecord


class RankFold:
    """One rank's records as blocks; its device and host are read in this process.

    Attributes:
        position: its last iteration.
    """

    def __init__(self, identity: RankIdentity, machine: Machine, reads_device: bool = True) -> None:
        """`machine`: what all ranks of this process share; `reads_device`: on a thread of its own."""
        self.position = 0
        self._rank, self._machine = identity.rank, machine
        self._identity = identity
        self._inquiry: Inquiry | None = None
        machine.join(identity)
        self._capture = Capture(identity.rank)
        self._cuts = CutKeeper(identity.microbatch)
        self._marks = MarksJoin(self._capture.add, self._cuts.add)
        self._phases = PhaseJoin(RunFacts.of({}))
        self._builder = BlockBuilder(identity.rank, machine.steps)
        self._host = HostReader(identity.pid, machine=machine.reader)
        self._notes: list[str] = []
        self._sampler: Sampler | None = None
        if identity.device_uuid is not None and reads_device:
            self._sampler = Sampler(identity.device_uuid)
            self._sampler.start()

    def meet(self, source: Source) -> None:
        """The process, to be asked what it is doing."""
        self._inquiry = Inquiry(self._identity, source)

    def take(self, records: Sequence[Any]) -> list[RankItem]:
        """Blocks that these records and the readings so far complete; marks and answers asked for."""
        for host in self._host.take():
            self._builder.add_reading(host)
        if self._sampler is not None:
            readings, remarks = self._sampler.take()
            self._notes += remarks
            for reading in readings:
                self._builder.add_reading(reading)
        blocks = [self._add(record) for slot in records for record in self._marks.take(slot)]
        doing = [] if self._inquiry is None else self._inquiry.take()
        return [*(block for block in blocks if block is not None), *self._capture.take(), *doing]

    def request(self, content: Any) -> None:
        """Keeps the marks of the window asked for, asks the process what it is doing."""
        self._capture.window = window_of(content)
        if self._inquiry is not None:
            self._inquiry.request(content)

    def notes(self) -> list[str]:
        """Reports of the monitor in that process and of its device's readings."""
        notes, self._notes = self._notes, []
        refusal = None if self._inquiry is None else self._inquiry.refusal()
        return [*notes, f"not profiled: {refusal}"] if refusal else notes

    def close(self) -> list[RankItem]:
        """The block under way, and what the machine has kept; the device is read no more."""
        if self._sampler is not None:
            self._sampler.stop()
        block = self._builder.close()
        found = [] if block is None else [self._machine.block(block)]
        return [*found, *self._machine.leave(self._rank)]

    def _add(self, record: Any) -> Block | None:
        if isinstance(record, StepRecord):
            self.position = record.iteration
            self._machine.step(self._rank, self._cuts.take(record.iteration))
            block = self._builder.add(record, self._phases.take(record))
            return None if block is None else self._machine.block(block)
        if isinstance(record, PhaseRecord):
            self._phases.hold(record)
        elif isinstance(record, EventRecord):
            self._notes.append(record.text)
        return None


def name_of(subject: RankIdentity | RankItem) -> str:
    """The member name of the rank that an identity or an item is about."""
    return str(subject.rank)


def encode_item(item: RankItem) -> Any:
    """The item as JSON types, for the files between nodes."""
    return encode_block(item) if isinstance(item, Block) else asdict(item)


def decode_item(content: Any) -> RankItem:
    """The item of which `encode_item` made this. Raises ValueError for damaged content."""
    if not isinstance(content, dict):
        return decode_block(content)
    if "stack" in content:
        return doing_of(content)
    if not isinstance(content.get("marks"), list) or len(content["marks"]) % 2:
        raise ValueError("no marks of a step")
    numbers = [value for name, value in content.items() if name != "marks"] + content["marks"]
    if any(type(number) is not int or abs(number) >= MAX_NS for number in numbers):
        raise ValueError("marks of a step that are no numbers")
    captured: CapturedRecord = recall(dump(content | {"kind": kind_of(CapturedRecord)}).encode())
    return captured


def _folds(reads_devices: bool) -> Callable[[RankIdentity], RankFold]:
    place = Place.of(os.environ)
    machine = Machine(None if place is None else place.world_size)
    return lambda identity: RankFold(identity, machine, reads_devices)


RANKS = PeerKind(identity_of, name_of, partial(_folds, True))
RANKS_WITHOUT_DEVICES = PeerKind(identity_of, name_of, partial(_folds, False))
