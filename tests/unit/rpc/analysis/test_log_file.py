"""A performance log read back, whoever wrote it and whatever happened to it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.rpc.analysis.columns import BATCH, call_at
from flagscale_perf.rpc.analysis.log_file import LogFile
from flagscale_perf.rpc.log import LogFormat
from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.spine.errors import PerfError
from tests.rpc_sessions import FACTS, MS, REQUIREMENT_LOG, make_call, make_session, write_log


def calls_in(log: LogFile) -> list[CallRecord]:
    found: list[CallRecord] = []
    for part in log.parts(found.clear):
        found += [call_at(part.columns, place) for place in range(len(part.cells[0]))]
    return found


def log_of(path: Path, text: str) -> LogFile:
    path.write_text(text)
    return LogFile(path)


def skipped(log: LogFile) -> list[tuple[int, str]]:
    return [(line.number, line.reason) for line in log.first_skipped]


def test_the_requirements_own_sample_is_read(tmp_path) -> None:
    log = log_of(tmp_path / "a.log", REQUIREMENT_LOG)
    calls = calls_in(log)
    assert [call.method for call in calls] == ["Init", "Embedding", "BatchLinear"]
    last = calls[-1]
    assert (last.number, last.total_ns, last.receive_ns) == (3, 3_491_000, 567_000)
    assert (last.sent_bytes, last.received_bytes) == (8192 * 1024, 24576 * 1024)
    assert (last.wait_ns, last.server_ns, last.queue_ns, last.dtype) == (None, None, None, 0)
    assert (log.format, log.facts.transport, log.facts.receive_has_wait) == (1, "IPC", True)
    assert (log.skipped, log.ended, log.session) == (0, "", "")


def stamped(text: str) -> str:
    """As `docker logs -t` prints it."""
    lines = enumerate(text.splitlines(keepends=True))
    return "".join(f"2026-11-28T05:41:49.{number:09d}Z {line}" for number, line in lines)


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + REQUIREMENT_LOG.encode(),
        REQUIREMENT_LOG.replace("\n", "\r\n").encode(),
        REQUIREMENT_LOG.replace("\n", "\r\n").encode("utf-16"),
        b"\xfe\xff" + REQUIREMENT_LOG.encode("utf-16-be"),
        gzip.compress(REQUIREMENT_LOG.encode()),
        stamped(REQUIREMENT_LOG).encode(),
        gzip.compress(stamped(REQUIREMENT_LOG).encode("utf-16")),
        stamped("\ufeff" + REQUIREMENT_LOG).encode(),
        ("\ufeff" + REQUIREMENT_LOG).replace("\n", "\r\n").encode() * 2,
    ],
    ids=["mark", "crlf", "utf-16", "utf-16-be", "gzip", "docker", "all", "mark in docker", "two with marks"],
)
def test_it_is_read_however_it_was_kept(tmp_path, content) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(content)
    assert open_session(path).logs
    log = LogFile(path)
    assert [call.method for call in calls_in(log)] == ["Init", "Embedding", "BatchLinear"]
    assert (log.skipped, log.facts.transport) == (0, "IPC")


def test_one_that_is_cut_while_packed_is_read_to_there(tmp_path) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(REQUIREMENT_LOG.encode() * 2000)[:-500])
    log = LogFile(path)
    assert open_session(path).logs and len(calls_in(log)) > 0
    reasons = [line.reason for line in log.first_skipped]
    assert any(each.startswith("cannot be read from here on: Compressed file ended") for each in reasons)


def test_a_line_above_the_title_is_the_reason(tmp_path) -> None:
    path = tmp_path / "a.log"
    path.write_text("Starting client ...\n" + REQUIREMENT_LOG)
    assert open_session(path).logs
    with pytest.raises(PerfError, match=r"but line 1 is 'Starting client ...'; remove what stands above"):
        LogFile(path)


def test_ours_says_more(tmp_path) -> None:
    written = [make_call(1), make_call(2, server_ns=None, queue_ns=None, status=1, dtype=0)]
    log = LogFile(write_log(tmp_path / "a.log", written))
    first, second = calls_in(log)
    assert first._replace(start_ns=0, socket_sent_bytes=0, client=0) == make_call(
        1, start_ns=0, socket_sent_bytes=0, socket_received_bytes=0, client=0
    )
    assert first.socket_sent_bytes == 3 << 20  # both ways
    assert (second.server_ns, second.queue_ns, second.status, second.dtype) == (None, None, 1, 0)
    assert (log.format, log.session, log.ended, log.skipped) == (2, "20240129_103000", "completed", 0)
    assert log.facts.endpoint == FACTS.endpoint and log.facts.payload == "frames"
    assert not log.facts.receive_has_wait


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("4     Matmul  1.0\n", "3 values, not 10"),
        ("4     Matmul  x 1 1 1 1 1 1 1\n", "'x' is no serialize"),
        ("4     Matmul  nan 1 1 1 1 1 1 1\n", "'nan' is no serialize"),
        ("4     Matmul  1 1 1 1 1 1 -3 1\n", "'-3' is no received bytes"),
        ("4     Matmul  1 1 1 1 1 1 inf 1\n", "'inf' is no received bytes"),
        ("4     Matmul  1 1 1", "cut off"),
    ],
)
def test_a_damaged_row_is_named_and_the_others_kept(tmp_path, damage, reason) -> None:
    log = log_of(tmp_path / "a.log", REQUIREMENT_LOG + damage)
    assert len(calls_in(log)) == 3
    assert (log.skipped, skipped(log)) == (1, [(8, reason)])


def test_what_stands_between_the_rows_is_named_and_a_foot_is_not(tmp_path) -> None:
    rows = REQUIREMENT_LOG.splitlines(keepends=True)
    foot = "=====\nTotal calls: 3\n"
    log = log_of(tmp_path / "a.log", "".join([*rows[:5], "garbage\n", *rows[5:], foot]))
    assert len(calls_in(log)) == 3
    assert skipped(log) == [(6, "between the rows, and no row")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r":1: the file is empty; no call has been logged"),
        (
            "hello\n",
            r":1: a log of calls begins with its title, 'ZeroMQ Performance Log - Transport: ...', but line 1"
            r" is 'hello'; remove what stands above the title",
        ),
        (
            "ZeroMQ Performance Log - Transport: IPC\n",
            r":3: the line with the names of the columns is missing",
        ),
        (REQUIREMENT_LOG.replace("Sent(KB)", "Sent(MB)"), r":3: there is no column Sent\(KB\)"),
    ],
)
def test_what_is_no_log_is_refused_with_its_line(tmp_path, text, message) -> None:
    with pytest.raises(PerfError, match=message):
        calls_in(log_of(tmp_path / "a.log", text))


def test_a_newer_format_is_named_and_read_as_far_as_it_goes(tmp_path) -> None:
    text = LogFormat(make_session()).heading().replace("format 2", "format 9")
    log = log_of(tmp_path / "a.log", text + LogFormat(make_session()).line(make_call(1)))
    assert len(calls_in(log)) == 1
    assert skipped(log) == [(5, "format 9 is newer than 2: update flagscale_perf")]


def test_the_last_session_counts(tmp_path) -> None:
    log = log_of(tmp_path / "a.log", REQUIREMENT_LOG + "\n" + REQUIREMENT_LOG.replace("IPC", "TCP"))
    assert len(calls_in(log)) == 3
    assert (log.facts.transport, log.skipped) == ("TCP", 0)


def test_long_ones_are_read_in_parts_and_damage_is_found_in_each(tmp_path) -> None:
    rows = REQUIREMENT_LOG.splitlines(keepends=True)
    log = log_of(tmp_path / "a.log", "".join(rows[:4] + rows[4:] * BATCH + ["9 x\n"] + rows[4:]))
    sizes = [len(part.cells[0]) for part in log.parts(lambda: None)]
    assert sum(sizes) == 3 * BATCH + 3 and max(sizes) <= BATCH
    assert skipped(log) == [(3 * BATCH + 5, "2 values, not 10")]


def test_a_row_is_exact(tmp_path) -> None:
    call = make_call(1, total_ns=10 * MS + 400)  # below what a log shows
    (read,) = calls_in(LogFile(write_log(tmp_path / "a.log", [call])))
    assert read.total_ns == 10 * MS
