"""The codec on every record there can be, and on lines that anybody may have written."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf.spine.jsonl import MAX_DEPTH, BadLine, encode, read_records
from flagscale_perf.spine.records import KINDS, Record
from flagscale_perf.store.decoder import decode
from tests.fakes import make_header
from tests.strategies import any_record, json_values

RECORD_TYPES = tuple(KINDS.values())
FIELD_NAMES = sorted({name for record_type in RECORD_TYPES for name in record_type.__annotations__})
HOSTILE = ['"\\ud800"', "1e999", "-1e999", "9" * 5000, "[" * 900 + "]" * 900, "{}", "-0", "true"]


@given(any_record)
def test_every_record_comes_back_as_it_was(record: Record) -> None:
    line = encode(record)
    assert (line.count(b"\n"), line.isascii()) == (1, True)
    assert decode(line) == record
    assert encode(decode(line)) == line


@given(
    st.binary(max_size=200)
    | st.lists(any_record, max_size=3).map(lambda records: b"".join(map(encode, records))),
    st.data(),
)
def test_any_bytes_are_records_and_bad_lines_and_nothing_else(content: bytes, data: st.DataObject) -> None:
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(0, 4)) if content else 0):
        place = data.draw(st.integers(0, len(changed)))
        changed[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    read = list(read_records(io.BytesIO(bytes(changed)), decode))
    assert all(isinstance(line, (BadLine, *RECORD_TYPES)) for line in read)
    assert len(read) == changed.count(b"\n") + (not changed.endswith(b"\n") and len(changed) > 0)


@given(st.sampled_from(sorted(KINDS)), st.dictionaries(st.sampled_from(FIELD_NAMES), json_values(3)))
def test_any_object_is_a_record_or_refused_with_a_reason(kind: str, fields: dict[str, Any]) -> None:
    line = json.dumps({"kind": kind} | fields).encode()
    try:
        record = decode(line)
    except ValueError as error:
        assert str(error)
        assert len(str(error)) < 300
    else:
        assert decode(encode(record)) == record


@given(any_record, st.sampled_from(["kind", *FIELD_NAMES]), st.sampled_from(HOSTILE))
def test_a_hostile_value_in_any_field_is_refused_or_comes_back_the_same(
    record: Record, name: str, value: str
) -> None:
    content = (
        encode(record)[:-2] + f',"{name}":{value}}}\n'.encode()
    )  # the later one of two equal keys counts
    (read,) = read_records(io.BytesIO(content), decode)
    assert isinstance(read, BadLine) or decode(encode(read)) == read


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("fact", "reason"),
    [
        ('{"x":' + json.dumps(nested(MAX_DEPTH - 2)) + "}", None),
        (
            '{"x":' + json.dumps(nested(MAX_DEPTH - 1)) + "}",
            f"field 'facts' is nested more than {MAX_DEPTH} deep",
        ),
        ('{"x":1e999}', "Number out of range - at `$.facts[...]`"),
        ('{"x":{"y":[' + str(10**38) + "]}}", "field 'facts' is out of range"),
    ],
)
def test_what_is_free_in_a_header_has_its_bounds(fact: str, reason: str | None) -> None:
    line = encode(make_header())
    place = line.index(b',"config"')
    read = list(read_records(io.BytesIO(line[:place] + b',"facts":' + fact.encode() + line[place:]), decode))
    if reason is None:
        assert read[0].facts == json.loads(fact)  # type: ignore[union-attr]
    else:
        assert read == [BadLine(1, reason)]
