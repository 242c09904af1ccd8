"""Records of any instrument as items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from flagscale_perf.analysis.timeline import (
    Id,
    Item,
    Part,
    Process,
    Reach,
    Timeline,
    arrow,
    end_to_end,
    id_of,
)
from flagscale_perf.spine.records import KINDS, TYPES, ClockRecord, RunEnd, record
from tests.fakes import make_event, make_header
from tests.traces import Recorded


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


def items(*records: Any) -> list[tuple[str, str, int, int, dict[str, Any], bool]]:
    """Name, row, begin, end, facts, and whether it has an id."""
    session: Any = Recorded(make_header(), *records)
    found = [each for each in Timeline(session).items(session) if isinstance(each, Item)]
    assert len({each.id for each in found if each.id}) == sum(each.id is not None for each in found)
    return [
        (each.name, each.track.name, each.begin_ns, each.end_ns, dict(each.facts), each.id is not None)
        for each in found
    ]


def test_a_record_with_a_time_needs_nothing_else(call: Any) -> None:
    assert items(make_header(), call("get", 100, 50, 8), call("put", 200, 0, 9), call("get", 300, 5, 8)) == [
        ("get", "toy_call", 100, 150, {"sent_bytes": 8}, True),
        ("put", "toy_call", 200, 200, {"sent_bytes": 9}, False),
        ("get", "toy_call", 300, 305, {"sent_bytes": 8}, True),
    ]


def test_events_are_moments_and_the_ends_of_a_file_and_its_clocks_are_nothing() -> None:
    records = [
        make_header(),
        make_event("note", at_ns=7, text="x"),
        ClockRecord(1, 2),
        RunEnd("done", 0, 1, 0),
    ]
    assert items(*records) == [("note", "events", 7, 7, {"text": "x"}, False)]


def test_an_instrument_draws_in_its_own_way(call: Any) -> None:
    session: Any = Recorded(make_header(), call("get", 1, 2, 3))
    own = {call: lambda one: ["own"]}
    assert [*Timeline(session, own, lambda: ["last"]).items(session)] == ["own", "last"]


def test_one_process_has_one_key_whichever_instrument_recorded_it() -> None:
    one = Process("node0", 7, "s1", "training", "rank 1", 1, 0, 1)
    assert one.key == Process("node0", 7, "s2", "profile", "Worker").key
    assert one.key != Process("node1", 7, "s1", "training", "rank 1", 1).key
    assert one.key != Process("node0", 7, "s1", "training", "rank 1", 1, apart=4).key  # another container
    unknown = [Process("node0", None, "s1", "training", f"rank {rank}", rank) for rank in (1, 2)]
    assert len({each.key for each in unknown}) == 2


def test_a_rank_is_named_by_stage_and_replica_and_others_by_their_pid() -> None:
    ranks = (
        Process("node0", 7, "s", "training", "rank 1", 1, 0, 2),
        Process(None, 7, "s", "profile", "Actor", 1),
    )
    assert [each.name for each in ranks] == ["stage 0, replica 2, rank 1 on node0", "rank 1, Actor"]
    assert Process("node0", 7, "s", "trace", "Actor").name == "Actor 7"
    assert Process("node0", None, "s", "trace", "", apart=3).name == "process 3"


def test_an_arrow_leads_from_an_end_to_a_beginning_or_where_both_overlap_into_the_other() -> None:
    first, then, beside = (Reach(Id(1, n), begin, begin + 10) for n, begin in ((1, 0), (2, 10), (3, 5)))
    source, target = arrow("x", first, then)
    assert (source.key, source.is_source, target.is_source) == (target.key, True, False)
    assert [(a.at_ns, b.at_ns) for a, b in (arrow("x", first, one) for one in (then, beside))] == [
        (9, 10),
        (0, 14),
    ]
    assert arrow("x", beside, first)[0].key not in (source.key, arrow("x", first, beside)[0].key)


def test_parts_stand_end_to_end_and_are_cut_off_at_the_end() -> None:
    parts = [("a", 3), ("b", None), ("c", -5), ("d", 4), ("e", 9), ("f", 1)]
    assert [*end_to_end(10, 20, parts)] == [Part("a", 10, 13), Part("d", 13, 17), Part("e", 17, 20)]


def test_ids_are_the_same_each_time() -> None:
    assert id_of("a", "b") == id_of("a", "b") != id_of("a", "c")
    assert id_of("a", "b").trace == id_of("a", "c").trace < 1 << 128
    assert id_of("a", "b").span < 1 << 64
