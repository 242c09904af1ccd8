"""One rank's steps folded into blocks, and blocks as lists."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf.training.host import HostRecord, HostStretch
from flagscale_perf.training.phases import PHASES, StepPhases
from flagscale_perf.training.ranks.blocks import Block, BlockBuilder, decode_block, encode_block
from flagscale_perf.training.records import PhaseRecord
from tests.fakes import MS, SECOND, make_reading, make_skipped_data, make_step


def blocks_of(steps, builder=None):
    builder = builder or BlockBuilder(3)
    return [block for step in steps if (block := builder.add(step, None)) is not None]


def a_block(**changes) -> Block:
    block = Block(3, 5, 9, 5, 100 * MS, 90 * MS, 10 * MS, 2 * MS, 10**9, 1980, "idle, power", 0, 2)
    return block._replace(**changes)


def test_blocks_are_cut_where_those_of_every_rank_are_cut() -> None:
    builder = BlockBuilder(3)
    found = blocks_of([make_step(iteration) for iteration in range(3, 16)], builder)
    assert [(block.rank, block.first_iteration, block.iteration, block.steps) for block in found] == [
        (3, 3, 4, 2),
        (3, 5, 9, 5),
        (3, 10, 14, 5),
    ]
    last = builder.close()
    assert last is not None
    assert (last.first_iteration, last.iteration, builder.close()) == (15, 15, None)


def test_a_block_is_over_when_a_later_or_an_earlier_iteration_comes() -> None:
    found = blocks_of([make_step(6), make_step(12), make_step(7), make_step(7), make_step(20)])
    assert [(block.first_iteration, block.iteration) for block in found] == [(6, 6), (12, 12), (7, 7), (7, 7)]


def test_a_block_has_the_medians_of_its_steps() -> None:
    builder = BlockBuilder(0)
    times = [(100, 40, 7), (102, 44, None), (900, 800, 9), (101, 43, None), (99, 41, None)]
    for iteration, (whole, forward, data) in enumerate(times, 5):
        parts = {"data_loading": data, "forward": forward * MS, "exposed_grad_comm": (whole - forward) * MS}
        phases = PhaseRecord(iteration, *map(parts.get, PHASES))
        block = builder.add(make_step(iteration, iteration_ns=whole * MS), StepPhases(phases, None, None))
    assert block is not None
    assert (block.steps, block.iteration_ns) == (5, 101 * MS)
    assert (block.work_ns, block.wait_ns, block.data_ns) == (43 * MS, 58 * MS, 0)


def test_steps_that_do_not_say_how_fast_the_rank_is_are_left_out() -> None:
    slow = {"iteration_ns": 9 * SECOND}
    steps = [
        make_step(5, eval_ns=SECOND, **slow),
        make_step(6, checkpoint_ns=SECOND, **slow),
        make_skipped_data(7, 1),
        make_step(8),
        make_step(9),
    ]
    assert [(block.steps, block.iteration_ns, block.work_ns) for block in blocks_of(steps)] == [
        (2, 100 * MS, None)
    ]
    warmup = [make_step(6), make_step(7, warmup=1), make_step(8), make_step(9)]
    assert [(block.first_iteration, block.steps, block.iteration_ns) for block in blocks_of(warmup)] == [
        (6, 0, None)
    ]


def test_memory_and_readings_count_to_the_block_under_way() -> None:
    builder = BlockBuilder(0)
    builder.add_reading(
        make_reading(1, sm_clock_mhz=1900, throttle="power, of another version", xid=79, ecc_uncorrected=1)
    )
    builder.add_reading(make_reading(2, sm_clock_mhz=1400, throttle="idle", xid=0, ecc_uncorrected=4))
    blocks_of(
        [
            make_step(5, memory_peak_bytes=7),
            make_step(6, memory_peak_bytes=9),
            make_step(7, memory_peak_bytes=None),
        ],
        builder,
    )
    block = builder.close()
    assert block is not None
    assert block[8:] == (9, 1400, "idle, power", 79, 4, HostStretch(), ())
    builder.add(make_step(10, memory_peak_bytes=None), None)
    after = builder.close()
    assert after is not None
    assert after[8:] == (None, None, None, None, None, HostStretch(), ())


def test_a_block_has_what_was_read_of_its_host_until_its_end() -> None:
    """Steps of a second each; the first reading is only what later ones are counted from."""
    builder = BlockBuilder(0)
    for second in (1, 3, 8, 12):
        reading = HostRecord(second * SECOND, 2, run_delay_ns=100 * MS * second, disk_bytes=10 * second)
        builder.add_reading(reading)
    steps = [make_step(n, start_ns=n * SECOND, iteration_ns=SECOND, eval_ns=0) for n in range(12)]
    hosts = [block.host for block in blocks_of(steps, builder)]
    assert hosts == [
        HostStretch(2 * SECOND, 2, 200 * MS, disk_bytes=20),
        HostStretch(5 * SECOND, 2, 500 * MS, disk_bytes=50),
    ]
    last = builder.close()
    assert last is not None and last.host == HostStretch(4 * SECOND, 2, 400 * MS, disk_bytes=40)


@pytest.mark.parametrize(
    "block",
    [
        a_block(),
        a_block(work_ns=None, wait_ns=None, data_ns=None, throttle=None, xid=None),
        a_block(steps=0, iteration_ns=None, work_ns=None, wait_ns=None, data_ns=None),
        a_block(host=HostStretch(10**9, 2, 10**8)),
    ],
)
def test_what_is_decoded_equals_what_was_encoded(block: Block) -> None:
    assert decode_block(json.loads(json.dumps(encode_block(block)))) == block


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (0, 1, "not a block of this version"),
        (1, -1, "rank is not an integer from 0 to 1048575"),
        (1, True, "rank is not an integer from 0 to 1048575"),
        (3, 4, "iteration is not an integer from 5 to 9007199254740992"),
        (3, 9000, "iterations 5 to 9000 are not of one block"),
        (4, 6, "steps is not an integer from 0 to 5"),
        (4, 0, "steps (0) and their times do not belong together"),
        (5, 1.5, "iteration_ns is not an integer from 0 to 9007199254740992"),
        (6, None, "steps (5) and their times do not belong together"),
        (7, [1], "wait_ns is not an integer from -9007199254740992 to 9007199254740992"),
        (9, 2**60, "memory_peak_bytes is not an integer from 0 to 9007199254740992"),
        (11, "x" * 300, "throttle is not a text of at most 256 characters"),
    ],
)
def test_what_cannot_be_a_block_says_why(place: int, value: object, reason: str) -> None:
    content = encode_block(a_block())
    content[place] = value
    with pytest.raises(ValueError, match=".") as caught:
        decode_block(content)
    assert str(caught.value) == reason


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON, st.integers(0, 12))
def test_nothing_but_value_errors_comes_of_anything_else(value: object, place: int) -> None:
    content = encode_block(a_block())
    content[place] = value
    for attempt in (value, content, content[:place]):
        try:
            decoded = decode_block(attempt)  # type: ignore[arg-type]
        except ValueError:
            continue
        assert decode_block(encode_block(decoded)) == decoded
