"""Restarts of one experiment put one after the other, by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import Job
from flagscale_perf.report.text import render
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import RunEnd
from flagscale_perf.training.analysis.history import History, report_of
from flagscale_perf.training.analysis.history import stitch as stitched
from flagscale_perf.training.goodput import Goodput
from tests.fakes import MS, SECOND, make_facts, make_header, make_phases, make_step
from tests.golden import golden

HALF_PAST_NS = make_header().start_wall_ns


def write_session(
    directory: Path, minute: int, first: int, last: int, end: tuple[str, int] | None = None, **more
) -> Path:
    """Steps of 1 s from the session's start on; the process began 2 s before. `end`: reason and second.

    `more`: facts; and `loading_ms`, with which the steps have phases and load data so long.
    """
    loading_ms = more.pop("loading_ms", None)
    session_id = f"20240129_10{minute:02d}00"
    start_ns = HALF_PAST_NS + (minute - 30) * 60 * SECOND
    resumed = {"resume_iteration": first - 1} | more
    header = replace(make_header(session_id, make_facts(**resumed)), start_wall_ns=start_ns)
    steps = [make_step(n, start_ns=(n - first) * SECOND, iteration_ns=SECOND) for n in range(first, last + 1)]
    ends = [RunEnd(end[0], start_ns + end[1] * SECOND, last, 0)] if end else []
    path = directory / f"perf_records_{session_id}.jsonl"
    phases = (
        []
        if loading_ms is None
        else [make_phases(step.iteration, data_loading_ns=loading_ms * MS) for step in steps]
    )
    pairs = zip(phases, steps, strict=True) if phases else zip(steps, strict=True)
    path.write_bytes(b"".join(map(encode, [header, *chain.from_iterable(pairs), *ends])))
    return path


def stitch(directory: Path) -> History:
    return stitched(Job(directory).sessions())


def test_what_a_restart_does_again_was_lost_the_first_time(tmp_path: Path) -> None:
    write_session(tmp_path, 30, 1, 14, ("killed", 15))
    write_session(tmp_path, 31, 11, 20, ("completed", 10))
    history = stitch(tmp_path)
    first, second = history.sessions
    assert (first.session_id, first.first_iteration, first.last_iteration) == ("20240129_103000", 1, 14)
    assert (first.end_reason, first.redone, first.gap_ns) == ("killed", 4, 0)
    assert first.goodput == Goodput(
        17 * SECOND,
        2 * SECOND,
        10 * SECOND,
        data_stall_ns=None,
        late_ns=None,
        lost_ns=4 * SECOND,
        idle_ns=SECOND,
    )
    # ended at 10:30:15, the next process began at 10:30:58
    assert (second.end_reason, second.redone, second.gap_ns) == ("completed", 0, 43 * SECOND)
    assert second.goodput == Goodput(12 * SECOND, 2 * SECOND, 10 * SECOND, data_stall_ns=None, late_ns=None)
    whole = Goodput(
        72 * SECOND,
        4 * SECOND,
        20 * SECOND,
        data_stall_ns=None,
        late_ns=None,
        lost_ns=4 * SECOND,
        idle_ns=44 * SECOND,
    )
    assert history.goodput == whole
    assert history.goodput.ettr == 20 / 72


def test_a_later_restart_that_goes_further_back_counts_for_all_before_it(tmp_path: Path) -> None:
    write_session(tmp_path, 30, 1, 10)
    write_session(tmp_path, 31, 9, 20)
    write_session(tmp_path, 32, 6, 25)
    assert [session.redone for session in stitch(tmp_path).sessions] == [5, 12, 0]
    assert [session.end_reason for session in stitch(tmp_path).sessions] == ["not known"] * 3


def test_a_second_training_of_one_process_begins_where_the_first_ended(tmp_path: Path) -> None:
    write_session(tmp_path, 30, 1, 10, ("exception ValueError", 10))
    # its process is as old as the first one's
    write_session(tmp_path, 31, 11, 12, ("completed", 2), process_start_ns=-62 * SECOND)
    history = stitch(tmp_path)
    assert [session.gap_ns for session in history.sessions] == [0, 0]
    # from 10:30:10 to 10:31:00 it was on its way to the next step
    assert history.sessions[1].goodput == Goodput(
        52 * SECOND, 50 * SECOND, 2 * SECOND, data_stall_ns=None, late_ns=None
    )
    assert history.goodput.wall_ns == 64 * SECOND


def test_a_data_stall_is_that_of_all_sessions_or_not_known(tmp_path: Path) -> None:
    write_session(tmp_path, 30, 1, 14, ("killed", 15), loading_ms=100)
    write_session(tmp_path, 31, 11, 20, ("completed", 10), loading_ms=300)
    write_session(tmp_path, 32, 21, 20, ("completed", 1), loading_ms=0)
    # 10 of the first session's 14 were kept
    stall, productive = stitch(tmp_path).goodput.data_stall_ns, stitch(tmp_path).goodput.productive_ns
    assert (stall, productive) == (4 * SECOND, 16 * SECOND)
    write_session(tmp_path, 33, 21, 22, ("completed", 2))
    mixed = stitch(tmp_path).goodput
    assert (mixed.data_stall_ns, mixed.productive_ns) == (None, 22 * SECOND)


def test_a_session_that_finished_nothing_is_startup(tmp_path: Path) -> None:
    write_session(tmp_path, 30, 1, 0, ("exception OSError", 4))
    (session,) = stitch(tmp_path).sessions
    assert (session.first_iteration, session.last_iteration, session.goodput) == (
        None,
        None,
        Goodput(6 * SECOND, 6 * SECOND),
    )


def test_a_file_that_cannot_be_read_is_named_and_left_out(tmp_path: Path) -> None:
    write_session(tmp_path, 30, 1, 4, ("completed", 4))
    (tmp_path / "perf_records_20240129_110000.jsonl").write_bytes(b"")
    history = stitch(tmp_path)
    assert (len(history.sessions), len(history.unread)) == (1, 1)
    assert history.unread[0].reason.endswith(
        "the file is empty; this is not a run file of flagscale_perf, or its run has only just begun"
    )


@pytest.mark.parametrize("name", ["nowhere", "a file", "empty"])
def test_without_a_session_it_says_what_to_give(tmp_path: Path, name: str) -> None:
    (tmp_path / "a file").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(PerfError, match="give the directory of --perf-log-dir"):
        stitch(tmp_path / name)


def test_nothing_but_unreadable_files_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "perf_records_20240129_110000.jsonl").write_bytes(b"x")
    with pytest.raises(PerfError, match="this is not a run file"):
        stitch(tmp_path)


def test_a_kill_a_restart_and_a_file_that_is_none(tmp_path: Path) -> None:
    write_session(tmp_path, 30, 1, 14, ("killed", 15), loading_ms=100)
    write_session(tmp_path, 31, 11, 20, ("completed", 10), loading_ms=100)
    write_session(tmp_path, 32, 21, 20, ("exception \x1b[2J", 10))
    (tmp_path / "perf_records_20240129_110000.jsonl").write_bytes(b"")
    shown = render(report_of(stitch(tmp_path)))
    assert shown.replace(str(tmp_path), "RUN_DIR") == golden("report_all_sessions.txt")


def test_one_session_is_one(tmp_path: Path) -> None:
    write_session(tmp_path, 30, 1, 4, ("completed", 4))
    assert render(report_of(stitch(tmp_path))).startswith("1 session in ")
