"""A run of two processes, small enough to be worked out by hand: a rollout puts rows 0 to 3 in a call, and a
trainer gets them, after which one of its calls fails.

Its header's monotonic mark 1,000 ns is the Unix time 1,700,000,000,000,001,000 ns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.peers.records import NameRecord, ProcessRecord
from flagscale_perf.spine.records import Record, RunHeader
from flagscale_perf.trace.records import ONE, CallRecord, Kind, OperationRecord, RowsRecord

TRACE = "0af76519-16cd-43dd-8448-eb211c80319c"
WALL_NS, MONO_NS = 1_700_000_000_000_001_000, 1_000
NAMES = {1: "train", 2: "rollout", 3: "TQ_STORAGE_UNIT_1", 4: "ValueError"}
OTHER_NAMES = {1: "rollout", 2: "train", 3: "update"}  # numbers are a process's own


def header() -> RunHeader:
    return RunHeader(1, "20260102_030405", WALL_NS, MONO_NS, {}, {}, "trace", "node1")


def operation(kind: Kind, number: int, start_ns: int, total_ns: int, **changes: Any) -> OperationRecord:
    """Of process 1, on rows 0 to 3 of "train", 64 bytes."""
    unknown = dict.fromkeys(
        (
            "select_ns",
            "serialize_ns",
            "unit_ns",
            "slowest_unit",
            "slowest_unit_ns",
            "notify_ns",
            "tags_ns",
            "decode_ns",
            "pack_ns",
            "step",
        )
    )
    made = OperationRecord(
        **unknown,
        process=1,
        number=number,
        call=0,
        operation=kind,
        start_ns=start_ns,
        total_ns=total_ns,
        size_bytes=64,
        rows=4,
        fields=1,
        first_row=0,
        last_row=3,
        partition=1,
        error=0,
        weight_milli=ONE,
        trace_id="",
        field_set=None,
    )
    return made._replace(**changes)


def call(number: int, start_ns: int, total_ns: int, **changes: Any) -> CallRecord:
    """Of process 1, `rollout`, all of it compute."""
    made = CallRecord(
        process=1,
        number=number,
        parent=0,
        start_ns=start_ns,
        total_ns=total_ns,
        get_ns=0,
        compute_ns=total_ns,
        put_ns=0,
        rows=4,
        operations=0,
        operations_get_ns=0,
        operations_put_ns=0,
        get_bytes=None,
        put_bytes=64,
        function=2,
        error=0,
        weight_milli=ONE,
        step=7,
        trace_id="",
    )
    return made._replace(**changes)


def process(number: int, pid: int, title: str) -> ProcessRecord:
    return ProcessRecord(number, pid, title, 0, None, 0, 0)


def records() -> list[Record]:
    put = {"call": 2, "slowest_unit": 3, "slowest_unit_ns": 200, "unit_ns": 250, "trace_id": TRACE}
    return [
        header(),
        process(1, 101, "RolloutWorker"),
        *(NameRecord(1, number, text) for number, text in NAMES.items()),
        operation(Kind.PUT, 1, 2_000, 500, **put),
        call(2, 1_500, 1_100, trace_id=TRACE),
        process(2, 202, "ActorWorker"),
        *(NameRecord(2, number, text) for number, text in OTHER_NAMES.items()),
        RowsRecord(2, 1, 0, (0, 1, 2, 2)),
        operation(
            Kind.GET, 1, 4_000, 300, process=2, partition=2, rows=3, weight_milli=2 * ONE, size_bytes=None
        ),
        operation(Kind.GET, 2, 5_000, 100, process=2, partition=2, call=9, first_row=8, last_row=9),
        call(3, 6_000, 50, process=2, function=3, error=1, put_ns=None),
    ]


def run(directory: Path, made: list[Record] | None = None) -> Session:
    path = directory / "perf_records_20260102_030405.jsonl"
    path.write_bytes(b"".join(map(encode, made or records())))
    return open_session(path)
