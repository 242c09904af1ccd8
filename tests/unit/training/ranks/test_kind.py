"""A rank's records made into blocks, with its device's readings; what a rank and a block are as JSON."""

from __future__ import annotations

import json

import pytest

from flagscale_perf.spine.records import EventRecord
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.ledger.cuts import CutKeeper
from flagscale_perf.training.phases import PhaseJoin
from flagscale_perf.training.ranks import kind
from flagscale_perf.training.ranks.blocks import Block, BlockBuilder
from flagscale_perf.training.ranks.identity import content_of
from flagscale_perf.training.ranks.kind import RANKS, RANKS_WITHOUT_DEVICES, decode_item, encode_item, name_of
from flagscale_perf.training.ranks.machine import Machine
from flagscale_perf.training.records import CapturedRecord
from tests.fakes import make_identity, make_marks, make_phases, make_reading, make_step


def blocks_of(*iterations: int, with_phases: bool = False) -> list[Block]:
    builder, phases, machine = BlockBuilder(1), PhaseJoin(RunFacts.of({})), Machine(2)
    cuts = CutKeeper(make_identity(1).microbatch)
    machine.join(make_identity(1))
    made: list[Block | None] = []
    for iteration in iterations:
        step = make_step(iteration)
        if with_phases:
            phases.hold(make_phases(iteration))
            cuts.add(step, make_marks(iteration).marks)
        machine.step(1, cuts.take(iteration))
        made.append(builder.add(step, phases.take(step)))
    return [machine.block(block) for block in [*made, builder.close()] if block is not None]


def test_steps_become_blocks_with_the_phases_of_their_marks() -> None:
    fold = RANKS.folds()(make_identity(1))
    marked = [slot for iteration in range(1, 5) for slot in (make_marks(iteration), make_step(iteration))]
    assert fold.take(marked) == blocks_of(1, 2, 3, 4, with_phases=True)
    assert fold.take([make_step(5), make_step(6)]) == []
    assert (fold.position, fold.close()) == (6, blocks_of(5, 6))
    assert fold.close() == []


def test_what_the_monitor_there_says_is_a_note() -> None:
    fold = RANKS.folds()(make_identity(1))
    assert fold.take([EventRecord("shed", 1, 1, "phases switched off")]) == []
    assert (fold.notes(), fold.notes()) == (["phases switched off"], [])


def test_marks_of_a_window_are_kept_beside_the_blocks() -> None:
    fold = RANKS.folds()(make_identity(1))
    fold.request({"capture": [2, 3]})
    marked = [slot for iteration in range(1, 5) for slot in (make_marks(iteration), make_step(iteration))]
    block, *captured = fold.take(marked)
    assert [block] == blocks_of(1, 2, 3, 4, with_phases=True)
    assert [(each.rank, each.iteration) for each in captured if isinstance(each, CapturedRecord)] == [
        (1, 2),
        (1, 3),
    ]
    for each in captured:
        assert decode_item(json.loads(json.dumps(encode_item(each)))) == each
        assert name_of(each) == "1"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({}, "no marks of a step"),
        ({"rank": 1, "iteration": 2, "start_ns": 3, "train_step_ns": 4, "marks": [1]}, "no marks of a step"),
        ({"rank": 1, "iteration": 2, "start_ns": 3, "train_step_ns": 4, "marks": ["1", 2]}, "marks"),
        (7, "block of this version"),
    ],
)
def test_what_is_no_item_is_refused(content: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode_item(content)


class FakeSampler:
    """One hot reading; or a driver that has hung, and a remark about it."""

    def __init__(self, device_uuid: str) -> None:
        self.device_uuid = device_uuid
        self.is_stopped = False
        started.append(self)

    def start(self) -> None:
        """Begins."""

    def stop(self) -> None:
        self.is_stopped = True

    def take(self) -> tuple[list, list[str]]:
        if self.device_uuid == "hung":
            return [], ["no hardware counters: hung"]
        return [make_reading(1, throttle="power")], []


started: list[FakeSampler] = []


def test_devices_are_read_each_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "Sampler", FakeSampler)
    started.clear()
    identities = [
        make_identity(rank, device_uuid=uuid) for rank, uuid in ((1, "hung"), (2, "good"), (3, None))
    ]
    fold_of = RANKS.folds()
    folds = [fold_of(identity) for identity in identities]
    steps = [make_step(iteration) for iteration in range(1, 5)]
    blocks = [block for fold in folds for block in fold.take(steps)]
    assert [(block.rank, block.throttle) for block in blocks] == [(1, None), (2, "power"), (3, None)]
    assert [fold.notes() for fold in folds] == [["no hardware counters: hung"], [], []]
    for fold in folds:
        fold.close()
    assert [(each.device_uuid, each.is_stopped) for each in started] == [("hung", True), ("good", True)]
    RANKS_WITHOUT_DEVICES.folds()(identities[1])
    assert len(started) == 2


def test_identity_and_block_come_back_from_json() -> None:
    identity, (block,) = make_identity(1, device_uuid="abc"), blocks_of(1, 2, 3, 4)
    assert RANKS.decode_owner(json.loads(json.dumps(content_of(identity)))) == identity
    assert decode_item(json.loads(json.dumps(encode_item(block)))) == block
    assert name_of(identity) == name_of(block) == "1"
