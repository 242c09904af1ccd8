"""Lines read together: the same records and the same bad lines as line by line."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf.rpc.records import CallRecord, ServedRecord
from flagscale_perf.spine import jsonl
from flagscale_perf.spine.jsonl import MAX_LINE_BYTES, MAX_TEXT, BadLine, WholeLines, encode
from flagscale_perf.spine.records import EventRecord, Record
from flagscale_perf.store.decoder import Chunk, Joined, decode, is_header, read_chunks
from tests.fakes import make_event, make_header, make_step
from tests.rpc_sessions import make_call, make_served

STEPS = [make_step(1), make_step(2, device_ns=None, model_flops=10**30), make_step(3, memory_bytes=None)]
CALLS = [make_call(1), make_call(2, queue_ns=None, method=""), make_call(3, method="Matmul"), make_call(4)]
RECORDS = [make_header(), *STEPS, *CALLS, make_served(1), make_event("note", text='a "b" ü'), make_call(5)]


def one_by_one(content: bytes) -> Iterator[Record | BadLine | Joined]:
    """What the lines are, each by itself."""
    *lines, rest = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        if is_header(line[number == 1 :]):
            yield Joined(number)
            return
        if len(line) >= MAX_LINE_BYTES:
            yield BadLine(number, f"longer than {MAX_LINE_BYTES} bytes")
            continue
        try:
            yield decode(line)
        except ValueError as error:
            yield BadLine(number, str(error))
    if rest:
        yield BadLine(len(lines) + 1, "cut off", torn=True)


def read(content: bytes) -> list[Any]:
    """By chunks."""
    found: list[Any] = []
    for chunk in read_chunks(WholeLines(io.BytesIO(content))):
        found += chunk.records() if isinstance(chunk, Chunk) else [chunk]
    return found


def test_lines_alike_come_in_columns_and_the_order_stays() -> None:
    content = b"".join(map(encode, [make_header(), *CALLS, make_event("note"), make_served(1)]))
    (chunk,) = read_chunks(WholeLines(io.BytesIO(content)))
    assert isinstance(chunk, Chunk)
    assert dict(zip(CALLS[0]._fields, chunk.columns[type(CALLS[0])], strict=True))["number"] == (1, 2, 3, 4)
    header, calls, event, served = chunk.parts({CallRecord})
    assert (header, event, served) == (make_header(), make_event("note"), make_served(1))
    assert isinstance(calls, Chunk) and list(calls.records()) == CALLS
    served, header, *others = chunk.parts({CallRecord}, {ServedRecord})
    assert (header, served) == (make_header(), make_served(1))
    assert [type(each) for each in others] == [Chunk, EventRecord]
    assert read(content) == [make_header(), *CALLS, make_event("note"), make_served(1)]


def test_a_file_of_many_pieces_reads_as_one() -> None:
    content = b"".join(encode(make_call(number)) for number in range(1, 3001))
    assert len(content) > 4 * jsonl.CHUNK_BYTES
    assert read(content) == [make_call(number) for number in range(1, 3001)]


LINE = encode(make_call(7, method="Matmul"))
FIRST, SECOND = make_header("20240129_103000"), make_header("20240129_114500")

QUOTED = make_event("note", text='{"kind":"header"}')


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ([FIRST, *STEPS, SECOND, *CALLS], [FIRST, *STEPS, Joined(5)]),
        ([FIRST, *STEPS, FIRST, *STEPS], [FIRST, *STEPS, Joined(5)]),
        (
            [FIRST, *STEPS, b'{"kind":"st', SECOND, *CALLS],
            [FIRST, *STEPS, Joined(5)],
        ),
        ([FIRST, b'{"kind": "header"}\n', *STEPS], [FIRST, Joined(2)]),
        (
            [FIRST, QUOTED, CALLS[0]],
            [FIRST, QUOTED, CALLS[0]],
        ),
    ],
)
def test_a_second_header_ends_it(content: list[Any], found: list[Any]) -> None:
    data = b"".join(each if isinstance(each, bytes) else encode(each) for each in content)
    assert read(data) == found


def test_a_second_header_far_behind_ends_it() -> None:
    calls = [make_call(number) for number in range(1, 3001)]
    assert read(b"".join(map(encode, [FIRST, *calls, SECOND, *calls]))) == [FIRST, *calls, Joined(3002)]


DAMAGED = [
    LINE[:-1],
    LINE.replace(b'"number":7', b'"number":07'),
    LINE.replace(b'"number":7', b'"number":-'),
    LINE.replace(b'"number":7', b'"number":-0'),
    LINE.replace(b'"number":7', b'"number":7.0'),
    LINE.replace(b'"number":7', b'"number":1e3'),
    LINE.replace(b'"number":7', b'"number":true'),
    LINE.replace(b'"number":7', b'"number":null'),
    LINE.replace(b'"number":7', b'"number":"7"'),
    LINE.replace(b'"number":7', b'"number": 7'),
    *(
        LINE.replace(b'"number":7', b'"number":%d' % number)
        for number in (
            10**18 - 1,
            10**18,
            -(10**18),
            2**63,
            -(2**63),
            10**37 - 1,
            10**37,
            10**38 - 1,
            10**38,
            -(10**38),
        )
    ),
    *(
        LINE.replace(b'"start_ns":70000000', b'"start_ns":%d' % start_ns)
        for start_ns in (
            2**63 - 1,
            2**63,
            -(2**63),
            10**30,
        )
    ),
    re.sub(rb'"total_ns":\d+', b'"total_ns":-1', LINE),
    LINE.replace(b'"queue_ns":100000', b'"queue_ns":nul'),
    LINE.replace(b'"queue_ns":100000', b'"queue_ns":nulL'),
    LINE.replace(b'"number":7,', b""),
    LINE.replace(b'"number":7,', b'"number":7,"more":1,'),
    LINE.replace(b'"number":7,', b'"number":7,"number":8,'),
    LINE.replace(b"}\n", b',"kind":"end"}\n'),
    LINE.replace(b"}\n", b"} \n"),
    LINE.replace(b"}\n", b"}}\n"),
    LINE.replace(b"}\n", b"}," + LINE),
    LINE.replace(b"}\n", b',"x":[{"y":1}\n') + LINE.replace(b"}\n", b"]}\n"),
    *(
        LINE.replace(b"Matmul", text)
        for text in (
            b"a\\nb",
            b"a\\u00fc",
            b"\xc3\xbc",
            b"\xff",
            b"a\tb",
            b"\x7f",
            b'a"b',
            b"a\\",
            b"}",
            b"",
            b"a" * MAX_TEXT,
            b"a" * (MAX_TEXT + 1),
            b"a" * MAX_LINE_BYTES,
        )
    ),
]


@pytest.mark.parametrize("damaged", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_line_is_what_it_is_by_itself_and_the_others_stay(damaged: bytes) -> None:
    content = encode(make_call(1)) + encode(make_call(2)) + damaged + encode(make_call(3))
    assert read(content) == list(one_by_one(content))


@given(st.data())
def test_whatever_the_damage_it_is_what_it_is_line_by_line(data: st.DataObject) -> None:
    lines = data.draw(st.lists(st.sampled_from(RECORDS).map(encode), max_size=6))
    changed = bytearray(b"".join(lines))
    for _ in range(data.draw(st.integers(0, 3)) if changed else 0):
        place = data.draw(st.integers(0, len(changed)))
        more = data.draw(st.binary(max_size=3) | st.sampled_from([b"\n", b'"', b"{", b"}", b",", b"9" * 20]))
        changed[place : place + data.draw(st.integers(0, 3))] = more
    assert read(bytes(changed)) == list(one_by_one(bytes(changed)))


def test_the_end_of_a_line_that_is_too_long_is_looked_for_over_many_pieces() -> None:
    content = b"x" * (3 * MAX_LINE_BYTES) + b"\n" + encode(make_call(1)) + b"y" * (2 * MAX_LINE_BYTES)
    too_long = f"longer than {MAX_LINE_BYTES} bytes"
    assert read(content) == [BadLine(1, too_long), make_call(1), BadLine(3, too_long)]
