"""Traced processes, one run file: whatever ends first."""

import os
import random
import re
import shutil
import signal
import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.spine import companion
from flagscale_perf.spine.peers.handover import UNSAID
from flagscale_perf.spine.peers.records import NameRecord
from flagscale_perf.spine.records import EventRecord, Record, RunEnd
from flagscale_perf.store.run_file import RunFile
from flagscale_perf.trace.analysis.source import read_traces
from flagscale_perf.trace.options import TraceOptions
from flagscale_perf.trace.records import CallRecord
from flagscale_perf.trace.task import job_of
from flagscale_perf.writer.membership import Membership
from tests import members
from tests.faults import shim
from tests.faults.mounts import mounted
from tests.machines import container
from tests.members import ends, finished, records_in, say, so_far, wait_for, writer_of
from tests.traced import PARTITION, counts, operation

process = partial(members.process, "tests.traced", VERL_LOGGING_LEVEL="INFO")
FULL = "put 1; say; wait; put 1000; say; wait"


def kept(directory: Path) -> list[list[Record]]:
    """Of every run file that its writer has ended."""
    found = [list(RunFile(path)) for path in directory.glob("perf_records_*") if path.stat().st_size]
    return [records for records in found if any(isinstance(record, RunEnd) for record in records)]


def lines(path: Path, word: str) -> int:
    return path.read_text().count(word)


def test_three_processes_share_one_run_file_and_have_a_log_each(tmp_path: Path) -> None:
    with ExitStack() as stack:
        started = [stack.enter_context(process(tmp_path, "put 1000; call 10; say; wait")) for _ in range(3)]
        pids = [so_far(each) for each in started]
        for each in started:
            each.communicate("\n")
    records = finished(tmp_path)
    assert counts(records) == dict.fromkeys(pids, 1010)
    assert ends(records) == dict.fromkeys(pids, ("completed", 0, 0))
    for pid in pids:
        log = tmp_path / f"tq_trace_{pid}.log"
        assert (lines(log, "TQ_CLIENT_GET_END"), lines(log, "FUNCTION_END")) == (1000, 10)


def test_what_hangs_has_its_lines_and_what_dies_in_it_is_counted_and_named(tmp_path: Path) -> None:
    """A get within the work of a call: neither ever ends."""
    with process(tmp_path, "put 3; begin; say; wait") as hanging:
        pid = so_far(hanging)
        log = tmp_path / f"tq_trace_{pid}.log"
        wait_for(lambda: log.exists() and "trace_id=a1 | stage=TQ_CLIENT" in log.read_text())
        stages = re.findall(r"trace_id=a1 .*?stage=(\w+)", log.read_text())
        assert stages == ["FUNCTION_START", "GET_START", "GET_END", "COMPUTE_START", "TQ_CLIENT_GET_START"]
        hanging.kill()
    finished(tmp_path)
    traces = read_traces(open_session(tmp_path))
    compute, get = traces.unended
    who = f"a program {pid} (its process ended without reporting why)"
    assert compute.startswith(f"{who}: the compute in partition train_1 of rollout, begun ")
    assert get.startswith(f"{who}: a get in partition train_1 of rollout, begun ")
    assert (traces.sums.count, traces.losses.lost) == (3, 0)


def test_the_writer_outlives_the_process_that_started_it(tmp_path: Path) -> None:
    with (
        process(tmp_path, "put 100; say; wait") as first,
        process(tmp_path, "pause 0.5; put 5; say; wait") as other,
    ):
        killed = so_far(first)
        writer_of(tmp_path)  # before it runs, nobody else has the records
        first.kill()
        first.wait()
        pid = so_far(other)
        other.communicate("\n")
    records = finished(tmp_path)
    assert counts(records) == {killed: 100, pid: 5}
    assert ends(records) == {killed: (UNSAID, 0, 0), pid: ("completed", 0, 0)}


def test_no_call_waits_until_the_writer_runs_but_the_end_does(tmp_path: Path, monkeypatch) -> None:
    done, is_put, start = [], threading.Event(), companion.start

    def start_late(*args: Any, **kwargs: Any) -> Any:
        is_put.wait(members.LIMIT_S)
        done.append("the writer")
        return start(*args, **kwargs)

    monkeypatch.setattr(companion, "start", start_late)
    joined = Membership.join(job_of(TraceOptions(True, True, tmp_path)), "a program")
    for record in (NameRecord(0, PARTITION, "train"), operation(1)):
        joined.put(record)
    done.append("the records")
    is_put.set()
    joined.end("completed")
    assert done == ["the records", "the writer"]
    assert counts(finished(tmp_path)) == {os.getpid(): 1}
    assert joined._visit is not None
    joined._visit._thread.join()


def test_a_process_that_ends_at_once_loses_nothing(tmp_path: Path) -> None:
    with process(tmp_path, "put 3") as only:
        assert only.wait() == 0
    assert counts(finished(tmp_path)) == {only.pid: 3}


def test_a_killed_writer_has_a_successor_that_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    orders = "put 1000; say; wait; put 1000; call 5; say; wait"
    with ExitStack() as stack:
        started = [stack.enter_context(process(tmp_path, orders)) for _ in range(3)]
        pids = [so_far(each) for each in started]
        killed = 0
        for _ in range(2):
            killed = writer_of(tmp_path, but=killed)
            os.kill(killed, signal.SIGKILL)
        writer_of(tmp_path, but=killed)
        for each in started:
            say(each)
            so_far(each)
        for each in started:
            each.communicate("\n")
    records = finished(tmp_path)
    assert counts(records) == dict.fromkeys(pids, 2005)
    assert ends(records) == dict.fromkeys(pids, ("completed", 0, 0))
    for pid in pids:
        log = tmp_path / f"tq_trace_{pid}.log"
        assert (lines(log, "TQ_CLIENT_GET_START"), lines(log, "TQ_CLIENT_GET_END")) == (2000, 2000)
        assert (lines(log, "FUNCTION_START"), lines(log, "FUNCTION_END")) == (5, 5)


def test_processes_of_a_moment_are_found(tmp_path: Path) -> None:
    with process(tmp_path, "put 1; say; wait") as first:
        pids = {so_far(first)}
        for _ in range(5):
            with process(tmp_path, "put 3; say; kill") as brief:
                pids.add(so_far(brief))
                brief.wait()
        first.communicate("\n")
    assert counts(finished(tmp_path)) == {pid: 1 if pid == min(pids) else 3 for pid in pids}


def test_a_forked_worker_has_a_ring_of_its_own(tmp_path: Path) -> None:
    with process(tmp_path, "put 10; fork 20; put 10; say; fork 30") as parent:
        pid = so_far(parent)
        assert parent.wait() == 0
    found = counts(finished(tmp_path))
    assert found.pop(pid) == 20
    assert sorted(found.values()) == [20, 30]


def test_what_had_no_room_is_counted_and_said(tmp_path: Path) -> None:
    with process(tmp_path, "put 1; say; wait; put 20000; say; wait; put 1; say; wait") as one:
        pid = so_far(one)
        writer = writer_of(tmp_path)
        os.kill(writer, signal.SIGSTOP)
        say(one)
        so_far(one)
        os.kill(writer, signal.SIGCONT)
        wait_for(lambda: counts(records_in(tmp_path)).get(pid, 0) > 1)
        say(one)
        so_far(one)
        one.communicate("\n")
    records = finished(tmp_path)
    kept = counts(records)[pid]
    ((reason, dropped, lost),) = ends(records).values()
    assert kept < 20_002
    assert (reason, dropped, lost) == ("completed", 20_002 - kept, 20_002 - kept)
    said = (
        f"process {pid} (a program): {lost} of its calls and operations are lost, {dropped} records dropped"
    )
    assert said in [record.text for record in records if isinstance(record, EventRecord)]


def test_the_last_records_that_had_no_room_are_counted_too(tmp_path: Path) -> None:
    with process(tmp_path, "put 1; say; wait; put 20000; say; wait") as one:
        pid = so_far(one)
        writer = writer_of(tmp_path)
        os.kill(writer, signal.SIGSTOP)
        say(one)
        so_far(one)
        one.kill()
        one.wait()
        os.kill(writer, signal.SIGCONT)
    records = finished(tmp_path)
    kept = counts(records)[pid]
    assert ends(records) == {pid: (UNSAID, 20_001 - kept, 20_001 - kept)}


def test_eight_processes_killed_at_random_lose_nothing(tmp_path: Path) -> None:
    chance = random.Random(15)
    with ExitStack() as stack:
        orders = ";".join(["put 100", "say", "wait"] + ["put 100"] * 8 + ["put 99", "call 1", "say", "wait"])
        started = [stack.enter_context(process(tmp_path, orders)) for _ in range(8)]
        pids = [so_far(each) for each in started]
        writer_of(tmp_path)  # before it runs, nobody else has the records
        wait_for(lambda: counts(records_in(tmp_path)).keys() == set(pids))
        for each in started:
            say(each)
        for each in started:
            so_far(each)
        for each in chance.sample(started, 5):
            each.kill()
            each.wait()
        for each in started:
            if each.poll() is None:
                each.communicate("\n")
    records = finished(tmp_path)
    assert counts(records) == dict.fromkeys(pids, 1000)
    assert {(dropped, lost) for _, dropped, lost in ends(records).values()} == {(0, 0)}
    assert sorted(reason for reason, _, _ in ends(records).values()) == ["completed"] * 3 + [UNSAID] * 5


def test_lines_go_to_stdout_where_that_is_asked_for(tmp_path: Path) -> None:
    with process(tmp_path, "call 2; put 3", TQ_TRACE_STDOUT="1") as one:
        out, err = one.communicate()
    assert (out.count("stage=FUNCTION_END"), out.count("TQ_CLIENT_GET_END"), err) == (2, 3, "")


@pytest.mark.parametrize(
    ("level", "said"),
    [("WARN", "VERL_LOGGING_LEVEL=WARN"), ("", "VERL_LOGGING_LEVEL is not set, and its WARN")],
)
def test_a_level_that_hides_the_lines_is_said(level: str, said: str, tmp_path: Path) -> None:
    with process(tmp_path, "call 2; wait", VERL_LOGGING_LEVEL=level) as one:
        assert one.stderr is not None
        told = one.stderr.readline()
        out, err = one.communicate("\n")
    assert (out, told + err) == (
        "",
        f"flagscale_perf: {said} hides [TQ-TRACE] and [TQ-DETAIL]; with INFO they are shown;"
        " the run file has all records\n",
    )
    assert sum(counts(finished(tmp_path)).values()) == 2
    assert not list(tmp_path.glob("tq_trace_*"))


def test_threads_and_finalisers_put_at_once(tmp_path: Path) -> None:
    with process(tmp_path, "threads 8 500") as one:
        assert one.wait() == 0
    records = finished(tmp_path)
    assert counts(records) == {one.pid: 4000}
    assert ends(records) == {one.pid: ("completed", 0, 0)}


def test_a_disk_that_is_full_for_a_while_costs_nothing(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=1M"), process(tmp_path / "small", FULL) as one:
        pid = so_far(one)
        writer_of(tmp_path / "small")
        ballast = tmp_path / "small" / "ballast"
        ballast.write_bytes(bytes(shutil.disk_usage(tmp_path / "small").free))
        say(one)
        so_far(one)
        assert one.stderr is not None
        said = one.stderr.readline()
        ballast.unlink()
        one.communicate("\n")
        records = finished(tmp_path / "small")
        assert counts(records) == {pid: 1001}
        assert ends(records) == {pid: ("completed", 0, 0)}
        assert lines(tmp_path / "small" / f"tq_trace_{pid}.log", "TQ_CLIENT_GET_END") == 1001
    assert "No space left on device" in said


def test_a_process_that_ends_on_a_full_disk_says_how_much_is_missing(tmp_path: Path) -> None:
    small = tmp_path / "small"
    with mounted(small, "size=1M"), process(small, FULL) as one:
        pid = so_far(one)
        writer = writer_of(small)
        wait_for(lambda: counts(records_in(small)) == {pid: 1})
        wait_for(lambda: any(path.stat().st_size for path in small.glob("tq_trace_*.log")))  # the views, too
        (small / "ballast").write_bytes(bytes(shutil.disk_usage(small).free))
        say(one)
        so_far(one)
        assert one.stderr is not None
        assert "No space left on device" in one.stderr.readline()
        _, said = one.communicate("\n")
        (run_file,) = small.glob("perf_records_*")
        assert said.splitlines()[-1] == (  # three names and the first operation are in it
            f"flagscale_perf: process {pid}: 1000 of 1004 records are not yet in {run_file}: run file:"
            " No space left on device"
        )
        (small / "ballast").unlink()  # within the minute for which the writer waits
        wait_for(lambda: not Path(f"/proc/{writer}").exists())
        assert counts(records_in(small)) == {pid: 1001}


def test_the_clock_of_the_sessions_start_labels_every_line(tmp_path: Path) -> None:
    """So that a wall clock that is set meanwhile moves none: they are made of monotonic marks."""
    with process(tmp_path, "call 1; say; wait") as one:
        pid = so_far(one)
        one.communicate("\n")
    (header, *_) = records = finished(tmp_path)
    (made,) = (record for record in records if isinstance(record, CallRecord))
    wall_us = (header.start_wall_ns + made.start_ns - header.start_mono_ns) // 1000
    (start,) = re.findall(
        r"FUNCTION_START \| timestamp=(\d+)\.(\d+)", (tmp_path / f"tq_trace_{pid}.log").read_text()
    )
    assert int("".join(start)) == wall_us


@pytest.mark.parametrize("hours", [1, -1])
def test_a_wall_clock_that_is_set_moves_nothing(tmp_path: Path, hours: int) -> None:
    """In the process and in its writer, between two calls."""
    stepped = shim.Shim(shim.build(tmp_path), tmp_path / "control", tmp_path / "nothing")
    try:
        with process(tmp_path / "trace", "call 1; say; wait; call 1", **stepped.environment) as one:
            pid = so_far(one)
            writer_of(tmp_path / "trace")
            stepped.set(shift_s=hours * 3600)
            assert one.communicate("\n")[1] == ""
    finally:
        stepped.close()
    (header, *_) = records = finished(tmp_path / "trace")
    made = [record for record in records if isinstance(record, CallRecord)]
    assert [(record.number, record.total_ns) for record in made] == [(1, 914_024_000), (2, 914_024_000)]
    assert 0 < made[1].start_ns - made[0].start_ns < 60 * 10**9
    text = (tmp_path / "trace" / f"tq_trace_{pid}.log").read_text()
    shown = re.findall(r"FUNCTION_START \| timestamp=(\d+)\.(\d+)", text)
    wall_us = [(header.start_wall_ns + each.start_ns - header.start_mono_ns) // 1000 for each in made]
    assert [int("".join(each)) for each in shown] == wall_us


def test_containers_that_share_a_network_and_see_no_processes_of_each_other_lose_nothing(
    tmp_path: Path,
) -> None:
    """Both are process 1 or so of their own; none can tell whether one of the other lives."""
    within, orders = container(), "put 10; say; wait; put 10; say"
    with ExitStack() as stack:
        started = [stack.enter_context(process(tmp_path, orders, within)) for _ in range(2)]
        for each in started:
            so_far(each)
        for each in started:
            say(each)
            so_far(each)
        wait_for(lambda: len(kept(tmp_path)) == 2)
    for records in kept(tmp_path):
        assert list(counts(records).values()) == [20]
        assert list(ends(records).values()) == [("completed", 0, 0)]
