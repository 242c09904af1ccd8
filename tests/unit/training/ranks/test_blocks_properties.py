"""Blocks that go over the network: what is sent comes back, and what anybody sends is a whole block or
refused.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf.spine.records import Record
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.ledger.cuts import is_undisturbed
from flagscale_perf.training.phases import PhaseJoin
from flagscale_perf.training.ranks.blocks import (
    BLOCK_STEPS,
    MAX_RANKS,
    Block,
    BlockBuilder,
    decode_block,
    encode_block,
)
from flagscale_perf.training.records import HardwareRecord, PhaseRecord, StepRecord
from tests.strategies import json_values, runs


def blocks_of(records: list[Record]) -> list[Block]:
    builder, join = BlockBuilder(3), PhaseJoin(RunFacts.of({}))
    found: list[Block | None] = []
    for record in records:
        if isinstance(record, PhaseRecord):
            join.hold(record)
        elif isinstance(record, HardwareRecord):
            builder.add_reading(record)
        elif isinstance(record, StepRecord):
            found.append(builder.add(record, join.take(record)))
    return [block for block in [*found, builder.close()] if block is not None]


@given(runs(40))
def test_the_blocks_of_a_run_come_back_from_the_wire(records: list[Record]) -> None:
    steps = [record for record in records if isinstance(record, StepRecord)]
    blocks = blocks_of(records)
    numbers = [block.iteration // BLOCK_STEPS for block in blocks]
    assert numbers == sorted(set(numbers))
    assert {step.iteration // BLOCK_STEPS for step in steps} == set(numbers)
    assert sum(block.steps for block in blocks) <= sum(map(is_undisturbed, steps))
    for block in blocks:
        assert decode_block(json.loads(json.dumps(encode_block(block)))) == block


SAMPLE = Block(5, 20, 24, 5, 100, None, None, None, 10**9, 1980, "power", 0, 0)


@given(json_values(3) | st.lists(json_values(2), max_size=len(SAMPLE) + 2))
def test_anything_is_a_block_or_refused(content: Any) -> None:
    check(content)


@given(
    st.dictionaries(
        st.integers(0, len(SAMPLE)), json_values(2) | st.integers(-3, MAX_RANKS + 3), min_size=1, max_size=3
    )
)
def test_a_block_with_anything_in_its_places_is_whole_or_refused(changes: dict[int, Any]) -> None:
    content = encode_block(SAMPLE)
    for place, value in changes.items():
        content[place] = value
    check(content)


def check(content: Any) -> None:
    try:
        block = decode_block(content)
    except ValueError as error:
        assert str(error)
    else:
        assert decode_block(encode_block(block)) == block
        assert 0 <= block.rank < MAX_RANKS
        assert 0 <= block.first_iteration <= block.iteration
        assert 0 <= block.steps <= BLOCK_STEPS
