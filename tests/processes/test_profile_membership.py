"""Profiled ranks, one run file: whatever ends first, and however many rows a window has."""

import os
import signal
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from flagscale_perf.profile.records import RankRecord, WindowRecord
from flagscale_perf.profile.task import SLOTS
from flagscale_perf.spine.peers.handover import UNSAID
from flagscale_perf.spine.records import EventRecord, RunEnd, RunHeader
from flagscale_perf.spine.session import session_of
from tests import members
from tests.members import ends, finished, say, so_far, wait_for, writer_of
from tests.profiled import counts

process = partial(members.process, "tests.profiled")
MANY = 3 * SLOTS


def lost(started: object) -> int:
    """What the rank says that it lost of a window."""
    return int(started.stdout.readline().split()[-1])  # type: ignore[attr-defined]


def test_two_ranks_share_one_run_file_that_says_what_was_profiled(tmp_path: Path) -> None:
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                process(tmp_path, "window 20; say; wait", RANK=str(rank), FLAGSCALE_PERF_CSV="1")
            )
            for rank in (0, 1)
        ]
        assert [lost(each) for each in started] == [0, 0]
        pids = [so_far(each) for each in started]
        for each in started:
            each.communicate("\n")
    records = finished(tmp_path)
    header = records[0]
    assert isinstance(header, RunHeader)
    assert header.instrument == "profile"
    assert header.facts["job"] == "a"
    assert header.facts["machine"] == os.uname().nodename
    assert header.facts["cores"] == len(os.sched_getaffinity(0))
    assert header.facts["accelerator"] is None
    assert header.facts["profiled"]["steps"] == "1-2"
    assert "torch" in header.facts["versions"]
    assert header.config["perf_log_dir"] == str(tmp_path)
    assert counts(records) == dict.fromkeys(pids, 20)
    assert ends(records) == dict.fromkeys(pids, ("completed", 0, 0))
    places = sorted((each.rank, each.tensor) for each in records if isinstance(each, RankRecord))
    assert places == [(0, 0), (1, 1)]
    assert sorted(each.process for each in records if isinstance(each, WindowRecord)) == [1, 2]
    assert [each.reason for each in records if isinstance(each, RunEnd)] == ["completed"]
    (path,) = tmp_path.glob("perf_*")
    assert session_of(path.name)


def test_more_rows_than_the_ring_holds_wait_for_the_writer(tmp_path: Path) -> None:
    with process(tmp_path, f"window 1; say; wait; window {MANY}; window {MANY}; say; wait") as one:
        assert lost(one) == 0
        pid = so_far(one)
        writer = writer_of(tmp_path)
        os.kill(writer, signal.SIGSTOP)
        say(one)
        os.kill(writer, signal.SIGCONT)
        assert [lost(one), lost(one)] == [0, 0]
        so_far(one)
        one.communicate("\n")
    records = finished(tmp_path)
    assert counts(records) == {pid: 2 * MANY + 1}
    assert ends(records) == {pid: ("completed", 0, 0)}


def test_a_writer_that_takes_nothing_is_not_waited_for_without_end_and_the_loss_is_said(
    tmp_path: Path,
) -> None:
    with process(tmp_path, f"window 1; say; wait; window {MANY} 0.2; say; wait; window 1; say; wait") as one:
        lost(one)
        pid = so_far(one)
        writer = writer_of(tmp_path)
        os.kill(writer, signal.SIGSTOP)
        say(one)
        missing = lost(one)
        so_far(one)
        os.kill(writer, signal.SIGCONT)
        wait_for(lambda: counts(members.records_in(tmp_path)).get(pid, 0) > 1)
        say(one)
        assert lost(one) == 0
        so_far(one)
        one.communicate("\n")
    records = finished(tmp_path)
    assert MANY > missing > MANY - SLOTS - 1
    # two steps, a collective and the window's record of each window, beside its rows
    windows = sum(isinstance(record, WindowRecord) for record in records)
    assert windows == 2
    assert ends(records) == {pid: ("completed", missing, missing)}
    text = f"process {pid} (rank 0): {missing} of its records are lost, {missing} records dropped"
    assert text in [record.text for record in records if isinstance(record, EventRecord)]


def test_a_rank_that_is_killed_leaves_what_it_had_put(tmp_path: Path) -> None:
    with (
        process(tmp_path, "window 100; say; wait", RANK="0") as first,
        process(tmp_path, "window 5; say; wait", RANK="1") as other,
    ):
        lost(first), lost(other)
        killed, pid = so_far(first), so_far(other)
        writer_of(tmp_path)  # before it runs, nobody else has the records
        first.kill()
        first.wait()
        other.communicate("\n")
    records = finished(tmp_path)
    assert counts(records) == {killed: 100, pid: 5}
    assert ends(records) == {killed: (UNSAID, 0, 0), pid: ("completed", 0, 0)}


def test_a_killed_writer_has_a_successor_that_goes_on_where_it_stopped(tmp_path: Path) -> None:
    orders = f"window 1; say; wait; window {MANY}; say; wait"
    with ExitStack() as stack:
        started = [stack.enter_context(process(tmp_path, orders, RANK=str(rank))) for rank in (0, 1)]
        for each in started:
            lost(each)
        pids = [so_far(each) for each in started]
        writer = writer_of(tmp_path)
        for each in started:
            say(each)
        os.kill(writer, signal.SIGKILL)
        writer_of(tmp_path, but=writer)
        assert [lost(each) for each in started] == [0, 0]
        for each in started:
            so_far(each)
            each.communicate("\n")
    records = finished(tmp_path)
    assert counts(records) == dict.fromkeys(pids, MANY + 1)
    assert ends(records) == dict.fromkeys(pids, ("completed", 0, 0))
