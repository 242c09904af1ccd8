"""Registering record types: a new type, and a new field, work in codec, ring and timeline at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import pytest

from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import (
    KINDS,
    SCHEMA_VERSION,
    TYPES,
    EventRecord,
    Place,
    RunEnd,
    RunHeader,
    kind_of,
    place_of,
    record,
    room_of,
)
from flagscale_perf.spine.ring import Ring
from flagscale_perf.spine.slots import Bytes, Wide
from flagscale_perf.store.decoder import decode
from flagscale_perf.training.records import MARKS_PER_SLOT, MarksRecord, StepRecord
from tests.fakes import make_event, make_header, make_interval, make_phases, make_step


@pytest.fixture(autouse=True)
def scratch_registry() -> Iterator[None]:
    """Types that a test registers are gone after it."""
    types, kinds = dict(TYPES), dict(KINDS)
    yield
    for registry, before in ((TYPES, types), (KINDS, kinds)):
        registry.clear()
        registry.update(before)  # type: ignore[arg-type]


class CallRecord(NamedTuple):
    """One call, as an instrument might record it."""

    at_ns: int
    wait_ns: int | None
    sent_bytes: Wide | None
    method: Annotated[str, Bytes(24)]


class PartsRecord(NamedTuple):
    """Many integers of one call."""

    at_ns: int
    part_ns: tuple[int, ...]


def test_new_types_go_through_the_ring() -> None:
    record(slot=209)(CallRecord)
    record(slot=10)(PartsRecord)
    ring = Ring.create(slots=4)
    calls = [
        CallRecord(5, None, 2**100, "get"),
        PartsRecord(5, tuple(range(room_of(PartsRecord)))),
        CallRecord(6, 0, None, "größe"),
    ]
    for call in [*calls, PartsRecord(6, (0,) * (room_of(PartsRecord) + 1))]:
        ring.put(call)
    assert (ring.take(9), ring.dropped) == (calls, 1)
    ring.release()


def test_a_new_type_goes_through_the_codec() -> None:
    @record("call")
    @dataclass(frozen=True)
    class Call:
        start_ns: int
        parts: list[int]

    assert encode(Call(5, [1, 2])) == b'{"kind":"call","start_ns":5,"parts":[1,2]}\n'
    assert [decode(encode(Call(n, [1, 2]))) for n in (5, 6)] == [Call(5, [1, 2]), Call(6, [1, 2])]
    with pytest.raises(ValueError, match="Expected `int`, got `str`"):
        decode(encode(Call(5, ["x"])))  # type: ignore[list-item]


def test_a_record_of_one_field_is_read_again_and_again() -> None:
    @record("one")
    @dataclass(frozen=True)
    class One:
        name: str

    assert [decode(encode(One(name))) for name in "ab"] == [One("a"), One("b")]


def test_a_step_with_one_more_field_needs_nothing_else() -> None:
    fields: list[tuple[str, Any]] = [*StepRecord.__annotations__.items(), ("collected_ns", int | None)]
    longer: Any = NamedTuple("LongerStep", fields)  # type: ignore[misc]
    record("longer", slot=209, start="start_ns", duration="iteration_ns")(longer)
    step = longer(*make_step(3, start_ns=70, iteration_ns=9), 12)
    ring = Ring.create(slots=2)
    ring.put(step)
    ring.put(step._replace(collected_ns=None))
    assert (ring.take(9), ring.dropped) == ([step, step._replace(collected_ns=None)], 0)
    ring.release()
    assert decode(encode(step)) == step
    assert place_of(step, make_header()) == Place(70, 9)


def test_fields_that_must_be_checked_together_are_checked_whenever_one_is_read() -> None:
    @record("pair")
    @dataclass(frozen=True)
    class Pair:
        low: int
        high: int

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError("low is above high")

    good = encode(Pair(1, 2))
    for _ in range(2):
        assert decode(good) == Pair(1, 2)
        with pytest.raises(ValueError, match="low is above high"):
            decode(json.dumps({"kind": "pair", "low": 3, "high": 2}).encode())


def test_a_kind_and_a_slot_are_given_once() -> None:
    with pytest.raises(ValueError, match="kind 'step' is taken by StepRecord"):
        record("step")(CallRecord)
    with pytest.raises(ValueError, match="slot 2 is taken by EventRecord"):
        record("call", slot=2)(CallRecord)
    assert (CallRecord in TYPES, "call" in KINDS) == (False, False)


def test_a_field_is_not_called_what_a_line_calls_the_kind() -> None:
    class Odd(NamedTuple):
        kind: int

    with pytest.raises(ValueError, match="Odd.kind: a line of a run file has its kind under that name"):
        record("odd")(Odd)


def test_a_type_that_is_in_no_run_file_has_no_kind() -> None:
    assert (kind_of(StepRecord), kind_of(EventRecord)) == ("step", "event")
    with pytest.raises(KeyError):
        kind_of(MarksRecord)
    with pytest.raises(KeyError):
        encode(CallRecord(1, 1, 1, ""))


def test_only_a_record_of_many_integers_has_room_for_some() -> None:
    assert (room_of(MarksRecord), room_of(StepRecord), room_of(RunEnd)) == (MARKS_PER_SLOT, 0, 0)


def test_records_have_their_place_on_the_monotonic_clock_of_the_header() -> None:
    header = RunHeader(SCHEMA_VERSION, "20240129_103000", 1_000_500, 500, {}, {})
    placed = [
        (header, Place(500, 0)),
        (make_step(1, start_ns=700, iteration_ns=20), Place(700, 20)),
        (make_event(at_ns=710), Place(710, 0)),
        (make_interval(10, end_wall_ns=1_000_720), Place(720, 0)),
        (RunEnd("completed", 1_000_900, 1, 0), Place(900, 0)),
        (make_phases(1), None),
    ]
    assert [place_of(each, header) for each, _ in placed] == [place for _, place in placed]


def test_a_header_of_a_later_schema_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="schema version 2 is newer than 1: update flagscale_perf"):
        RunHeader(SCHEMA_VERSION + 1, "20240129_103000", 1, 1, {}, {})
