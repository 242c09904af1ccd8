"""Records that cross from one process to another are the same there."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.mappings import Mappings
from flagscale_perf.spine.records import KINDS, Record, RunHeader
from flagscale_perf.store.decoder import Chunk, decoder
from flagscale_perf.store.packed import Packer, unpacked
from flagscale_perf.training.records import IntervalRecord, StepRecord
from tests.fakes import make_header, make_interval, make_step
from tests.strategies import any_record


def crossed(pieces: list[list[Record]]) -> list[Chunk]:
    """The records, packed piece by piece, on the other side."""
    packer = Packer(decoder(), [*KINDS.values()])
    lines = [b"".join(map(encode, records)) for records in pieces]
    content, place = memoryview(b"".join(packer.packed(map(memoryview, lines)))), 0

    def read(size: int) -> memoryview:
        nonlocal place
        place += size
        return content[place - size : place]

    chunks = []
    while place < len(content):
        chunks.append(unpacked(read))
    return chunks


without_header = any_record.filter(lambda one: not isinstance(one, RunHeader))


@given(st.lists(st.lists(without_header, min_size=1, max_size=3), min_size=1, max_size=3))
def test_any_records_come_back_as_they_were(pieces: list[list[Record]]) -> None:
    expected = decoder().chunk(b"".join(encode(record) for records in pieces for record in records))
    found = [record for chunk in crossed(pieces) for record in chunk.records()]
    assert found == [*expected.records()]


def test_numbers_that_are_known_are_arrays_and_mappings_lie_in_columns() -> None:
    phases_ns = {"forward": 3, "backward": None}
    intervals = [replace(make_interval(n), phases_ns=phases_ns, throttle=None) for n in (10, 20)]
    (chunk,) = crossed([[make_step(n), one] for n, one in enumerate(intervals, 1)])
    steps = dict(zip(StepRecord._fields, chunk.columns[StepRecord], strict=True))
    assert steps["iteration"] == array("q", [1, 2])
    found = dict(zip(IntervalRecord.__annotations__, chunk.columns[IntervalRecord], strict=True))
    assert isinstance(found["phases_ns"], Mappings)
    assert [*found["phases_ns"]] == [one.phases_ns for one in intervals] == [*found["phases_ns"][:]]
    assert found["throttle"] == [None, None]


def test_integers_of_more_than_64_bits_stay_exact() -> None:
    steps = [make_step(n, model_flops=flops) for n, flops in enumerate((10**30 + 1, 2**63, None, 7), 1)]
    (chunk,) = crossed([steps])
    assert [*chunk.records()] == steps


def test_where_lines_change_another_chunk_begins() -> None:
    first, other = [make_step(1)] * 3, [make_step(2, model_flops=None)] * 3
    assert [[*chunk.records()] for chunk in crossed([first, other, other])] == [first, other * 2]


def test_a_header_and_what_is_no_line_are_refused() -> None:
    packer = Packer(decoder(), [*KINDS.values()])
    step = encode(make_step(1))
    for data in (
        encode(make_header()),
        step[:-1] + step,
        step.replace(b",", b",\n", 1),
        step + b"\n",
        step[:-1],
        step.replace(b',"', b',\n"', 1) + step[:-1] + step,
        encode(make_step(1, model_flops=10**38)),
    ):
        with pytest.raises(ValueError):
            [*packer.packed([memoryview(data)])]
    assert [*packer.packed([memoryview(step)])]
