"""`zmq_performance.log` has the requirement's form, and survives restarts, other writers and damage."""

from __future__ import annotations

import fcntl
import os
from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.rpc.facts import PROBE
from flagscale_perf.rpc.log import APPEND, LOG_FILE, METHODS, RULER, LogFormat, PerformanceLogSink
from flagscale_perf.rpc.summary import PRESENTATION
from flagscale_perf.rpc.totals import Totals
from flagscale_perf.sinks.base import SinkContext
from tests.golden import golden
from tests.rpc_sessions import (
    FACTS,
    REQUIREMENT_LOG,
    SMALL,
    ended,
    llama_calls,
    make_call,
    make_session,
    split,
)


def context(directory: Path, said: list[str], resumed: bool = False, **config) -> SinkContext:
    header = make_session(**{LOG_FILE: str(directory / "zmq_performance.log")} | config)
    return SinkContext(header, directory, said.append, PRESENTATION, resumed)


def opened(made: SinkContext) -> PerformanceLogSink:
    sink = PerformanceLogSink.open(made)
    assert sink is not None
    return sink


def written(made: SinkContext, *records) -> None:
    sink = opened(made)
    for record in records:
        sink.write(record)
        sink.flush()
    sink.close()


def rows(path: Path) -> list[str]:
    return [line.split()[0] for line in path.read_text().splitlines() if line[:1].isdigit()]


def whole_log(calls) -> str:
    lines, totals = LogFormat(make_session()), Totals()
    for call in calls:
        totals.add(call)
    return lines.heading() + "".join(map(lines.line, calls)) + lines.footer(totals, ended())


def test_it_looks_so() -> None:
    failed = make_call(27, method="Matmul", status=1, server_ns=None, queue_ns=None, dtype=0)
    assert whole_log([*llama_calls(split(SMALL)), failed]) == golden("zmq_performance.log")


def test_it_begins_as_the_requirements_does() -> None:
    ours = whole_log([]).splitlines()
    theirs = REQUIREMENT_LOG.splitlines()
    assert [ours[0], ours[1], ours[3]] == [theirs[0], theirs[1], theirs[3]]
    assert ours[2].startswith(theirs[2]) and theirs[1] == RULER


def test_its_first_columns_stand_where_the_requirements_do() -> None:
    call = make_call(
        3,
        serialize_ns=2_345_000,
        send_ns=234_000,
        receive_ns=567_000,
        deserialize_ns=345_000,
        total_ns=3_491_000,
        sent_bytes=8192 * 1024,
        received_bytes=24576 * 1024,
    )
    theirs = REQUIREMENT_LOG.splitlines()[-1]
    before_throughput = 126
    assert LogFormat(make_session()).line(call)[:before_throughput] == theirs[:before_throughput]


def test_the_transport_is_the_actual_one_and_what_is_missing_is_said() -> None:
    facts = replace(FACTS, transport="TCP", role=PROBE, receive_has_wait=True)
    heading = LogFormat(make_session(facts, **{METHODS: ["Matmul"]})).heading().splitlines()
    assert heading[0] == "ZeroMQ Performance Log - Transport: TCP"
    assert heading[-2:] == ["# Recv(ms) has the wait for the reply, too", "# only Matmul"]


def test_a_session_begins_it_anew(tmp_path) -> None:
    for _ in range(2):
        written(context(tmp_path, []), make_call(1), make_call(2), ended())
    assert rows(tmp_path / "zmq_performance.log") == ["1", "2"]


def test_or_goes_on_behind_the_one_before(tmp_path) -> None:
    for session_id in ("20240129_103000", "20240129_103005"):
        made = context(tmp_path, [], **{APPEND: True})
        made = replace(made, header=replace(made.header, session_id=session_id))
        written(made, make_call(1), make_call(2), ended())
    log = tmp_path / "zmq_performance.log"
    assert rows(log) == ["1", "2", "1", "2"]
    assert log.read_text().count("ZeroMQ Performance Log") == 2


def test_a_log_that_another_client_writes_is_left_alone(tmp_path) -> None:
    said: list[str] = []
    first = opened(context(tmp_path, said))
    first.write(make_call(1))
    first.flush()
    written(context(tmp_path, said), make_call(1), make_call(2))
    first.close()
    assert rows(tmp_path / "zmq_performance.log") == ["1"]
    assert rows(tmp_path / "zmq_performance_2.log") == ["1", "2"]
    (line,) = said
    assert "zmq_performance.log is written by another client; this one has" in line


def test_a_file_that_is_no_log_is_left_as_it_is(tmp_path) -> None:
    (tmp_path / "zmq_performance.log").write_text("my results\n")
    sink = opened(context(tmp_path, []))
    sink.write(make_call(1))
    with pytest.raises(OSError, match="is not a log of calls and is left as it is; give another log_file"):
        sink.flush()
    sink.close()
    assert (tmp_path / "zmq_performance.log").read_text() == "my results\n"


@pytest.mark.parametrize("torn", [0, 1, 40])
@pytest.mark.parametrize("kept", [0, 2, 3])
def test_the_next_writer_of_a_session_goes_on_where_the_first_one_died(tmp_path, kept, torn) -> None:
    calls = [make_call(1), make_call(3), make_call(2)]  # the order in which they ended
    written(context(tmp_path, []), *calls[:kept])
    log = tmp_path / "zmq_performance.log"
    if kept < len(calls):
        line = LogFormat(make_session()).line(calls[kept]) if kept else LogFormat(make_session()).heading()
        with log.open("a") as file:
            file.write(line[:torn])
    sink = opened(context(tmp_path, [], resumed=True))
    for record in calls:
        sink.write(record)
    sink.write(ended())
    sink.flush()
    sink.close()
    assert log.read_text() == whole_log(calls)


def test_nor_is_its_foot_written_twice(tmp_path) -> None:
    written(context(tmp_path, []), make_call(1), ended())
    written(context(tmp_path, [], resumed=True), make_call(1), ended())
    assert (tmp_path / "zmq_performance.log").read_text() == whole_log([make_call(1)])


def test_one_that_is_removed_is_begun_anew(tmp_path) -> None:
    sink, log = opened(context(tmp_path, [])), tmp_path / "zmq_performance.log"
    for number in (1, 2):
        sink.write(make_call(number))
        sink.flush()
        if number == 1:
            log.unlink()
    sink.close()
    assert rows(log) == ["2"] and log.read_text().startswith("ZeroMQ")


def test_it_is_locked_while_it_is_written(tmp_path) -> None:
    sink = opened(context(tmp_path, []))
    sink.write(make_call(1))
    sink.flush()
    fd = os.open(tmp_path / "zmq_performance.log", os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)
    sink.close()


def test_without_a_name_there_is_none(tmp_path) -> None:
    assert PerformanceLogSink.open(context(tmp_path, [], **{LOG_FILE: None})) is None


def test_a_session_without_a_call_leaves_the_log_of_the_one_before(tmp_path) -> None:
    written(context(tmp_path, []), make_call(1), make_call(2), ended())
    before = (tmp_path / "zmq_performance.log").read_text()
    written(context(tmp_path, []), ended("exception PerfError"))
    assert (tmp_path / "zmq_performance.log").read_text() == before
    written(context(tmp_path, []), make_call(1), ended())
    assert rows(tmp_path / "zmq_performance.log") == ["1"]
