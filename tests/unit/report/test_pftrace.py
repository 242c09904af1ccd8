"""Items as Perfetto's protobuf, decoded by Perfetto's package."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("perfetto.protos", reason="needs Perfetto's package")

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import BuiltinClock
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Decoded

from flagscale_perf.analysis.timeline import Counter, Drawn, End, Item, Part, Process, Track
from flagscale_perf.report import pftrace, trace
from tests.fakes import make_header
from tests.traces import Slice, check, drawing_of, of_json, of_protobuf

RANK = Process("node0", 42, "s", "training", "rank 3", 3)
ROW = Track(RANK, "row")
ZERO = make_header().start_mono_ns


def made_of(*items: Drawn) -> bytes:
    return b"".join(pftrace.pieces(drawing_of(make_header()), items))


def test_what_was_written_is_decoded() -> None:
    facts = {"whole": -5, "part": 0.5, "is": True, "text": "a\x1b", "large": 1 << 70, "unknown": None}
    made = of_protobuf(
        made_of(
            Item("work", ROW, ZERO + 10, ZERO + 30, facts, parts=(Part("stage", ZERO + 10, ZERO + 20),)),
            Item("note", ROW, ZERO + 12, ZERO + 12, error="ValueError"),
            Counter("power", RANK, ZERO + 1, 640.5),
            Counter("bytes", RANK, ZERO + 2, 1 << 60),
        )
    )
    check(made)
    assert made.processes == ["rank 3 on node0"]
    kept = {"whole": -5, "part": 0.5, "is": True, "text": "a\\x1b", "large": str(1 << 70)}
    place = ("rank 3 on node0", "row", made.slices[0].lane)
    assert made.slices == [
        Slice(*place, "work", 10, 30, kept),
        Slice(*place, "stage", 10, 20),
        Slice(*place, "note", 12, 12, {"error": "ValueError"}),
    ]
    assert made.counters == [
        ("rank 3 on node0", "power", 1, 640.5),
        ("rank 3 on node0", "bytes", 2, 1 << 60),
    ]


def test_times_count_from_the_start_and_a_snapshot_says_what_that_is() -> None:
    header = make_header()
    first, *rest = Decoded.FromString(made_of(Item("work", ROW, ZERO + 7, ZERO + 9))).packet
    clocks = {each.clock_id: each.timestamp for each in first.clock_snapshot.clocks}
    assert clocks == {
        first.trace_packet_defaults.timestamp_clock_id: 0,
        BuiltinClock.BUILTIN_CLOCK_MONOTONIC: header.start_mono_ns,
        BuiltinClock.BUILTIN_CLOCK_REALTIME: header.start_wall_ns,
    }
    assert {packet.trusted_packet_sequence_id for packet in (first, *rest)} == {1}
    assert [packet.timestamp for packet in rest if packet.HasField("track_event")] == [7, 9]


def test_an_arrow_of_what_overlaps_ends_where_its_target_does() -> None:
    """A reader takes events in the order of time, and has to find an arrow's beginning before its end."""
    key = (1 << 64) - 1
    waiting = Item("wait", ROW, ZERO, ZERO + 30, ends=(End(key, ZERO + 29, False, "last"),))
    last = Item("late", Track(RANK, "b"), ZERO + 20, ZERO + 30, ends=(End(key, ZERO + 20, True, "last"),))
    content = made_of(waiting, last)
    check(of_protobuf(content))
    flows = [
        (packet.timestamp, [*packet.track_event.flow_ids], [*packet.track_event.terminating_flow_ids])
        for packet in Decoded.FromString(content).packet
    ]
    assert sorted(each for each in flows if each[1] or each[2]) == [(20, [key], []), (30, [], [key])]


def test_a_slice_takes_40_bytes_and_json_says_the_same() -> None:
    chance, items = random.Random(1), []
    at_ns = ZERO + 3600 * 10**9
    for number in range(20_000):
        at_ns += chance.randrange(10**6)
        items.append(Item(f"op {number % 300}", ROW, at_ns, at_ns + chance.randrange(2 * 10**6)))
    content = made_of(*items)
    assert len(content) <= 40 * len(items)
    decoded = of_protobuf(content)
    check(decoded)
    other = of_json(b"".join(trace.pieces(drawing_of(make_header()), items)))
    key = [(one.row, one.name, one.begin_ns, one.end_ns) for one in decoded.slices]
    assert sorted(key) == sorted((one.row, one.name, one.begin_ns, one.end_ns) for one in other.slices)


def test_names_are_kept_once_and_only_so_many_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pftrace, "_MOST_NAMES", 2)
    names = ["a", "b", "a", "c", "b", "c"]
    items = [Item(name, ROW, ZERO + 10 * n, ZERO + 10 * n + 5, {"x": name}) for n, name in enumerate(names)]
    content = made_of(*items)
    assert [(one.name, one.facts["x"]) for one in of_protobuf(content).slices] == [(n, n) for n in names]
    packets = Decoded.FromString(content).packet
    assert sum(len(packet.interned_data.event_names) for packet in packets) == 2


def test_the_mass_of_operators_has_no_facts() -> None:
    dense = Track(RANK, "operators", is_dense=True)
    (one,) = of_protobuf(made_of(Item("mm", dense, ZERO, ZERO + 5, {"module": "m"}))).slices
    assert one.facts == {}


def test_what_was_written_before_everything_began_is_kept() -> None:
    made = pftrace.pieces(drawing_of(make_header(), ZERO + 100), [Item("note", ROW, ZERO + 95, ZERO + 95)])
    (packet,) = [
        packet for packet in Decoded.FromString(b"".join(made)).packet if packet.HasField("track_event")
    ]
    assert (packet.timestamp, packet.timestamp_clock_id) == (ZERO + 95, BuiltinClock.BUILTIN_CLOCK_MONOTONIC)


def test_impossible_times_and_values_of_a_damaged_file_are_no_error() -> None:
    track = Track(RANK, "row")
    made = of_protobuf(
        made_of(
            Item("x", track, ZERO, 1 << 90), Counter("y", RANK, 1 << 80, 1 << 90), Item("z", track, -5, -5)
        )
    )
    assert [one.name for one in made.slices] == ["z", "x"] and made.slices[1].end_ns == (1 << 63) - 1
