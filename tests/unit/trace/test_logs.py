"""A log for each process: names, levels, parts, and what an earlier writer has left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.sinks.base import SinkContext
from flagscale_perf.spine.files import open_locked
from flagscale_perf.spine.peers.records import NameRecord, ProcessRecord
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.trace.analysis.source import read_traces
from flagscale_perf.trace.logs import LinesSink, log_name, part_of
from flagscale_perf.trace.records import Begun, Kind, StartRecord, UnsizedRecord
from flagscale_perf.trace.summary import PRESENTATION
from flagscale_perf.trace.task import DETAIL, LEVEL, STDOUT, TRACE
from tests.trace_runs import make_wait
from tests.traced import FUNCTION, PARTITION, call, operation

HEADER = RunHeader(1, "20240129_103000", 0, 0, {}, {TRACE: True, DETAIL: True}, "trace", host="here")
BEGUN = ProcessRecord(1, 123, "Producer", 5, end=None, dropped=0, lost=0)
HEAD = "# process 1 of session 20240129_103000 on here: Producer"


def context(directory: Path, said: list[tuple[object, ...]] | None = None, **config: object) -> SinkContext:
    header = replace(HEADER, config=HEADER.config | config)
    say = [] if said is None else said

    def keep(*words: object) -> None:
        say.append(words)

    return SinkContext(header, directory, keep, PRESENTATION, complain=keep)


def opened(context: SinkContext, max_bytes: int = 1 << 20) -> LinesSink:
    sink = LinesSink(context, max_bytes)
    sink.write(BEGUN)
    sink.write(NameRecord(1, FUNCTION, "rollout"))
    return sink


def numbers(path: Path) -> list[str]:
    """Of the records whose last line is there."""
    return [
        line.split("number=")[1].split()[0] for line in path.read_text().splitlines() if "_END | d" in line
    ]


def test_a_log_has_the_lines_of_one_process(tmp_path: Path) -> None:
    sink = opened(context(tmp_path))
    sink.write(operation(1, process=1))
    sink.write(call(2, process=1))
    sink.write(replace(BEGUN, end="completed"))
    sink.flush()
    sink.close()
    head, *lines = (tmp_path / "tq_trace_123.log").read_text().splitlines()
    assert (head, len(lines), lines[2].split(" | ")[1]) == (HEAD, 10, "func=rollout")


def test_bytes_of_some_fields_are_said_with_the_names_of_the_others_and_not_counted(tmp_path: Path) -> None:
    sink = opened(context(tmp_path))
    for record in (
        NameRecord(1, 7, "image|s"),
        UnsizedRecord(1, 1, 3 << 20, (7,)),
        operation(1, process=1, size_bytes=None),
        operation(2, process=1),
    ):
        sink.write(record)
    sink.flush()
    sink.close()
    log = tmp_path / "tq_trace_123.log"
    some, whole = (line for line in log.read_text().splitlines() if "_END | " in line)
    assert (
        "| throughput_mbps=50.00 | batch_size=64 | fields=4 | data_size_mb=3.000000 | unsized=image" in some
    )
    assert "unsized" not in whole
    get = read_traces(open_session(log)).sums.operations[Kind.GET]
    assert (get.total.count, get.size.count, get.speed.count) == (2, 1, 1)


def stages(path: Path) -> list[str]:
    return [line.split("stage=")[1].split()[0] for line in path.read_text().splitlines() if "stage=" in line]


@pytest.mark.parametrize("is_resumed", [False, True])
def test_what_has_not_ended_has_its_lines_once_whoever_goes_on(is_resumed: bool, tmp_path: Path) -> None:
    ended = call(2, process=1, trace_id="a1")
    get = StartRecord(1, Begun.CALL, ended.start_ns, ended.start_ns, FUNCTION, 0, "a1")
    compute = get._replace(begun=Begun.COMPUTE, at_ns=ended.start_ns + ended.get_ns)
    short = operation(1, process=1)
    begun = StartRecord(1, Begun.GET, short.start_ns, short.start_ns, 0, PARTITION, short.trace_id)
    where = context(tmp_path)
    sink = opened(where)
    for record in (get, begun, short, compute):
        sink.write(record)
    sink.flush()
    path = tmp_path / log_name(123)
    open_stages = ["FUNCTION_START", "GET_START", "GET_END", "COMPUTE_START"]
    assert stages(path) == ["TQ_CLIENT_GET_START", "TQ_CLIENT_GET_END", *open_stages]
    if is_resumed:  # the next writer reads the session's records again
        sink.close()
        sink = opened(replace(where, resumed=True))
        for record in (get, begun, short, compute):
            sink.write(record)
    sink.flush()
    sink.write(ended)
    sink.flush()
    sink.close()
    assert stages(path)[2:] == [*open_stages, "COMPUTE_END", "PUT_START", "PUT_END", "FUNCTION_END"]


def test_a_wait_for_samples_has_its_lines_once_whoever_goes_on_and_none_of_them_is_torn(
    tmp_path: Path,
) -> None:
    wait = make_wait(partition=PARTITION, rows=0)
    begun = StartRecord(1, Begun.WAIT, wait.start_ns, wait.start_ns, 0, PARTITION, wait.trace_id)
    where = context(tmp_path)
    expected = ["TQ_CLIENT_WAIT_START", "TQ_CLIENT_WAIT_END"]
    for ended, resumed in ((False, False), (True, True), (True, True)):
        sink = opened(replace(where, resumed=resumed))
        sink.write(begun)
        sink.flush()
        if ended:
            sink.write(wait)
        sink.flush()
        sink.close()
        assert stages(tmp_path / log_name(123)) == expected[: 1 + ended]
    assert read_traces(open_session(tmp_path / log_name(123))).losses.torn == 0


@pytest.mark.parametrize(("trace", "detail", "count"), [(True, False, 8), (False, True, 2)])
def test_what_is_not_switched_on_has_no_line(trace: bool, detail: bool, count: int, tmp_path: Path) -> None:
    sink = opened(context(tmp_path, **{TRACE: trace, DETAIL: detail}))
    sink.write(operation(1, process=1))
    sink.write(call(2, process=1))
    sink.flush()
    sink.close()
    assert len((tmp_path / log_name(123)).read_text().splitlines()) == 1 + count


@pytest.mark.parametrize(
    ("level", "shows"), [("", False), ("INFO", True), (" debug", True), ("WARN", False), ("20", False)]
)
def test_the_level_of_verls_logging_hides_lines_and_that_is_said(
    level: str, shows: bool, tmp_path: Path
) -> None:
    said: list[tuple[object, ...]] = []
    sink = LinesSink.open(context(tmp_path, said, **{LEVEL: level}))
    assert (sink is not None, said == []) == (shows, shows)


def test_lines_go_to_the_stdout_of_their_process(tmp_path: Path) -> None:
    said: list[tuple[object, ...]] = []
    sink = opened(context(tmp_path, said, **{STDOUT: True}))
    sink.write(operation(1, process=1))
    assert [(str(text)[:11], pid) for text, pid in said] == [("[TQ-DETAIL]", 123)] * 2


def test_a_large_log_goes_on_in_a_new_part(tmp_path: Path) -> None:
    sink = opened(context(tmp_path), max_bytes=500)
    for number in range(1, 6):
        sink.write(operation(number, process=1))
        sink.flush()
    sink.close()
    parts = [
        tmp_path / log_name(123),
        *(part_of(tmp_path / log_name(123), number) for number in (1, 2, 3, 4)),
    ]
    assert [numbers(part) for part in parts] == [["5"], ["4"], ["3"], ["2"], ["1"]]
    assert {part.read_text().splitlines()[0] for part in parts} == {HEAD}


@pytest.mark.parametrize("first", list(Kind))
def test_the_next_writer_adds_what_is_missing_and_mends_what_is_torn(first: Kind, tmp_path: Path) -> None:
    log = tmp_path / log_name(123)
    log.write_text("what an earlier session has left\n")
    sink = opened(context(tmp_path))
    records = [
        *(operation(at, process=1, operation=int(kind)) for at, kind in enumerate((first, Kind.GET), 1))
    ]
    records += [call(3, process=1), operation(4, process=1)]
    for record in records[:3]:
        sink.write(record)
    sink.flush()
    sink.close()
    whole = log.read_text()
    log.write_text(whole[: whole.rindex("stage=FUNCTION_END")])
    sink = opened(replace(context(tmp_path), resumed=True))
    for record in records:
        sink.write(record)
    sink.flush()
    sink.close()
    lines = log.read_text().splitlines()
    assert lines[:2] == ["what an earlier session has left", HEAD]
    assert ("\n".join(lines[:14]) + "\n", len(lines)) == (whole, 16)


def test_a_log_that_another_machines_process_writes_is_left_alone(tmp_path: Path) -> None:
    fd = open_locked(tmp_path / log_name(123))
    sink = opened(context(tmp_path))
    sink.write(operation(1, process=1))
    sink.flush()
    sink.close()
    with open(fd, "rb"):
        assert (tmp_path / log_name(123)).read_text() == ""
    (other,) = tmp_path.glob("tq_trace_123_*.log")
    assert numbers(other) == ["1"]
