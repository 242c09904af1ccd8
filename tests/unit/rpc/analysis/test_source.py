"""Where calls are read from."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pandas
import pytest

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.job import open_session
from flagscale_perf.report import csv as report_csv
from flagscale_perf.rpc.analysis.columns import call_at
from flagscale_perf.rpc.analysis.instrument import INSTRUMENT
from flagscale_perf.rpc.analysis.source import LogSource, RunSource, open_source
from flagscale_perf.rpc.log import METHODS
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.records import EventRecord
from tests.rpc_sessions import (
    FACTS,
    REQUIREMENT_LOG,
    SMALL,
    llama_calls,
    make_call,
    make_served,
    split,
    write_log,
    write_run,
)
from tests.run_files import left_behind


def calls_of(source):
    found = []
    for columns in source.read(found.clear):
        found += [call_at(columns, place) for place in range(len(columns["number"]))]
    return found


def test_a_run_file(tmp_path) -> None:
    event = EventRecord("failure", 1, 2, "no room")
    path = write_run(tmp_path, [make_call(1), make_served(1), event, make_call(2)], **{METHODS: ["Matmul"]})
    source = open_source(open_session(path))
    assert isinstance(source, RunSource)
    assert calls_of(source) == [make_call(1), make_call(2)]
    assert calls_of(source) == [make_call(1), make_call(2)]  # again
    assert (source.state(), source.facts(), source.selected()) == ("completed", FACTS, ["Matmul"])
    assert (source.title(), source.begun()) == (
        "Calls of session 20240129_103000",
        "2024-01-29 10:30:00 by process 4711",
    )
    assert source.events == ["failure: no room"]
    assert source.served.methods["BatchLinear"].calls == 1
    reading = source.reading()
    assert reading.records == {"header": 1, "rpc_call": 2, "rpc_served": 1, "event": 1, "end": 1}
    assert reading.skipped == 0


def test_a_run_file_with_damage_keeps_its_good_calls(tmp_path) -> None:
    path = write_run(tmp_path, [make_call(1)])
    path.write_bytes(path.read_bytes() + b"{}\n")
    source = open_source(open_session(path))
    assert calls_of(source) == [make_call(1)]
    reading = source.reading()
    assert (reading.skipped, reading.first_skipped[0].number) == (1, 4)


def test_without_an_end_it_was_killed(tmp_path) -> None:
    path = write_run(tmp_path, [make_call(1)])
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    source = open_source(open_session(path))
    calls_of(source)
    assert source.state() == "not known"
    left_behind(path)
    source = open_source(open_session(path))
    calls_of(source)
    assert source.state() == "killed"


def test_a_log(tmp_path) -> None:
    source = open_source(open_session(write_log(tmp_path / "a.log", [make_call(1), make_call(2)])))
    assert isinstance(source, LogSource)
    assert [call.number for call in calls_of(source)] == [1, 2]
    assert (source.state(), source.facts(), source.selected(), source.begun()) == (
        "completed",
        replace(FACTS, latency_ns=None),
        [],
        None,
    )
    assert source.reading().records == {"rpc_call": 2}


def test_what_is_neither_is_refused(tmp_path) -> None:
    (tmp_path / "x").write_text("hello\n")
    with pytest.raises(PerfError, match="is not a run file of flagscale_perf"):
        open_source(open_session(tmp_path / "x"))


def csv_of(report: Report) -> str:
    return report_csv.render(report)


def test_csv_of_a_log_is_what_stands_in_the_log(tmp_path) -> None:
    (tmp_path / "a.log").write_text(REQUIREMENT_LOG)
    frame = pandas.read_csv(io.StringIO(csv_of(INSTRUMENT.report(open_session(tmp_path / "a.log")))))
    rows = [line.split() for line in REQUIREMENT_LOG.splitlines() if line[:1].isdigit()]
    keys = "ID,Method,Serialize_ms,Send_ms,Recv_ms,Deserialize_ms,Total_ms,Sent_KB,Recv_KB,Throughput_MBps"
    expected = pandas.DataFrame(rows, columns=keys.split(",")).astype(dict(frame.dtypes))
    pandas.testing.assert_frame_equal(frame, expected)
    assert frame["Throughput_MBps"].tolist() == [255.23, 4012.45, 9378.12]


def test_csv_of_ours_and_of_its_run_file_agree(tmp_path) -> None:
    calls = llama_calls(split(SMALL))
    log, run = write_log(tmp_path / "a.log", calls), write_run(tmp_path, calls)
    of_log, of_run = (
        list(csv.DictReader(io.StringIO(csv_of(INSTRUMENT.report(open_session(path))))))
        for path in (log, run)
    )
    assert [row.keys() for row in of_log] == [row.keys() for row in of_run]
    for one, other in zip(of_log, of_run, strict=True):
        for key, value in one.items():
            if key.endswith(("_ms", "_KB", "_MBps")):
                assert abs(float(value) - float(other[key])) <= 0.0051, (key, value, other[key])
            else:
                assert value == other[key]
