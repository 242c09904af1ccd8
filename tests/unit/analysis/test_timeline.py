"""Records of any instrument on one time axis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from flagscale_perf.analysis.timeline import Moment, Name, Span, Timeline, Track
from flagscale_perf.spine.records import KINDS, TYPES, RunEnd, record
from tests.fakes import make_event, make_header


@pytest.fixture
def call() -> Iterator[type]:
    """A record type of an instrument that draws nothing of its own."""

    @record("toy_call", start="start_ns", duration="dur_ns")
    class Call(NamedTuple):
        name: str
        start_ns: int
        dur_ns: int
        sent_bytes: int

    yield Call
    del TYPES[Call], KINDS["toy_call"]


def test_a_record_with_a_time_needs_nothing_else(call: type) -> None:
    records = [make_header(), call("get", 100, 50, 8), call("put", 200, 0, 9), call("get", 300, 5, 8)]
    assert list(Timeline(make_header()).items(records)) == [
        Name(Track(1, 100), "toy_call"),
        Span(Track(1, 100), "get", 100, 150, {"sent_bytes": 8}),
        Moment("put", 200, {"sent_bytes": 9}),
        Span(Track(1, 100), "get", 300, 305, {"sent_bytes": 8}),
    ]


def test_events_are_moments_and_the_ends_of_a_file_are_nothing() -> None:
    records = [make_header(), make_event("note", at_ns=7, text="x"), RunEnd("completed", 0, 1, 0)]
    assert list(Timeline(make_header()).items(records)) == [Moment("note", 7, {"text": "x"})]


def test_an_instrument_draws_in_its_own_way(call: type) -> None:
    own = {call: lambda one: [Moment("own", one.start_ns, {})]}
    names, rest = [Name(Track(1, 0), "toy", is_process=True)], lambda: [Moment("last", 9, {})]
    made = Timeline(make_header(), own, names, rest).items([call("get", 1, 2, 3)])
    assert list(made) == [*names, Moment("own", 1, {}), Moment("last", 9, {})]
