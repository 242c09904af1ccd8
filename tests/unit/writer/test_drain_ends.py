"""The end of a session, and what a writer that goes on for one that died makes of it: nothing twice, nothing
missing, all said.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.sinks import registry
from flagscale_perf.sinks.summary import SummarySink
from flagscale_perf.spine import files, stop_note
from flagscale_perf.spine.records import EventRecord, RunEnd
from flagscale_perf.spine.ring import Ring
from flagscale_perf.training.marks import in_slots
from flagscale_perf.training.recording.pipeline import Sources, TrainingPipeline
from flagscale_perf.training.records import MARKS_PER_SLOT, HardwareRecord, IntervalRecord, PhaseRecord
from flagscale_perf.training.summary.presentation import PRESENTATION
from flagscale_perf.writer import drain as drain_module
from tests.fakes import MS, SECOND, make_marks, make_reading, make_step
from tests.unit.writer.test_drain import (
    die,
    finish,
    full_disk,
    make_drain,
    never_waits,
    put,
    records_in,
    ring,
    said,
    steps_in,
)

__all__ = ["full_disk", "ring", "said"]


@pytest.fixture
def large_ring():
    made = Ring.create(slots=3 * drain_module.BATCH)
    yield made
    made.release()


def _target(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:  # of the listing itself
        return ""


class Flaky:
    """A file call that fails so many times before it works."""

    def __init__(self, call, times: int, error: int = errno.EIO, only: str = "") -> None:
        self.call, self.times, self.error, self.only = call, times, error, only

    def __call__(self, *args, **kwargs):
        if self.only in str(args[:1]) and self.times > 0:
            self.times -= 1
            raise OSError(self.error, "planted")
        return self.call(*args, **kwargs)


def test_marks_whose_steps_were_lost_do_not_hold_up_what_comes_after_them(
    large_ring: Ring, tmp_path: Path, said: list[str]
) -> None:
    drain = make_drain(large_ring, tmp_path, said)
    for iteration in range(1, drain_module.BATCH + 2):
        large_ring.put(in_slots(iteration, [1])[0])
        large_ring.put(make_step(iteration, model_flops=1 << 130))  # fits no slot
    last = drain_module.BATCH + 2
    large_ring.put(make_marks(last))
    put(large_ring, last)
    drain.cycle()
    assert steps_in(tmp_path) == [last]
    assert [record.other_ns for record in records_in(tmp_path) if isinstance(record, PhaseRecord)] == [6 * MS]
    finish(large_ring, drain)


def test_even_where_all_of_them_claim_to_be_of_one_step(
    large_ring: Ring, tmp_path: Path, said: list[str]
) -> None:
    drain = make_drain(large_ring, tmp_path, said)
    for record in in_slots(1, [1] * MARKS_PER_SLOT * drain_module.BATCH):
        large_ring.put(record)
    put(large_ring, 2)
    drain.cycle()
    assert steps_in(tmp_path) == [2]
    finish(large_ring, drain)


@pytest.mark.parametrize("kind", ["perf_summary", "perf_metrics", "perf_realtime", "tfevents"])
def test_a_view_that_never_worked_is_tried_again_at_the_end(
    ring: Ring, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(files.os, "open", Flaky(files.os.open, 9, only=kind))
    drain = make_drain(ring, tmp_path, said)
    put(ring, *range(1, 11))
    finish(ring, drain)
    (path,) = (path for path in tmp_path.rglob("*") if kind in path.name)
    assert path.stat().st_size > 0
    assert json.loads(Path(ring.summary or "").read_text())["session_info"]["end_reason"] == "completed"
    assert len(said) == 1


def test_one_that_never_works_is_given_up_before_long(ring: Ring, tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "perf_realtime.log").symlink_to(tmp_path / "elsewhere")
    drain = make_drain(ring, tmp_path, said)
    put(ring, 1)
    waited: list[float] = []
    for _ in range(100):
        drain.cycle()
    ring.close("completed", 0)
    drain.run(waited.append, lambda: False)
    assert (waited, len(said)) == ([], 1)


def test_a_failure_told_in_the_last_moment_is_in_run_file_and_summary(
    ring: Ring, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drain = make_drain(ring, tmp_path, said)
    put(ring, *range(1, 11))
    drain.cycle()
    monkeypatch.setattr(files.os, "stat", Flaky(files.os.stat, 1, only="perf_metrics"))
    finish(ring, drain)
    told = [record.text for record in records_in(tmp_path) if isinstance(record, EventRecord)]
    assert told[0].startswith("text log: OSError: [Errno 5] planted")
    assert told[1:] == ["text log works again"]
    assert json.loads(Path(ring.summary or "").read_text())["failure_count"] == 1


def test_a_writer_that_dies_after_the_end_has_been_recorded_leaves_nothing_to_record_twice(
    ring: Ring, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_drain(ring, tmp_path, said)
    put(ring, *range(1, 13))
    ring.close("exit 3", first._task.anchor.mono_ns)
    with monkeypatch.context() as patch:
        patch.setattr(
            first, "_hand_on", lambda session: (_ for _ in ()).throw(KeyboardInterrupt)
        )  # dies with all in the run file, nothing shown
        with pytest.raises(KeyboardInterrupt):
            first.run(never_waits, lambda: False)
    die(first)
    anchor = first._task.anchor
    second = make_drain(ring, tmp_path, said, anchor=anchor)
    second.cycle()
    monkeypatch.setattr(SummarySink, "flush", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        second.run(never_waits, lambda: False)
    die(second)
    monkeypatch.undo()
    third = make_drain(ring, tmp_path, said, anchor=anchor)
    third.run(never_waits, lambda: False)
    records = records_in(tmp_path)
    assert steps_in(tmp_path) == list(range(1, 13))
    assert [(r.first_iteration, r.iteration) for r in records if isinstance(r, IntervalRecord)] == [
        (1, 10),
        (11, 12),
    ]
    assert [r for r in records if isinstance(r, RunEnd)] == [
        RunEnd("exit 3", first._task.anchor.wall_ns, 12, 0)
    ]
    summary = json.loads(Path(ring.summary or "").read_text())
    assert (summary["session_info"]["end_reason"], len(summary["iteration_logs"])) == ("exit 3", 2)


def test_an_interval_that_a_dead_writer_owed_tells_of_drops(
    ring: Ring, tmp_path: Path, said: list[str]
) -> None:
    first = make_drain(ring, tmp_path, said)
    put(ring, *range(1, 81))  # the ring has 64 slots
    session = first._begin()
    assert first._fill(session)
    session.run_file.flush()
    path = next(tmp_path.glob("perf_records_*.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:11]))  # the header and ten steps, without their interval
    die(first)
    second = make_drain(ring, tmp_path, said)
    finish(ring, second)
    assert [r.dropped for r in records_in(tmp_path) if isinstance(r, IntervalRecord)] == [16] * 7


def test_no_record_is_written_twice_however_many_remarks_stood_between(
    large_ring: Ring, tmp_path: Path, said: list[str]
) -> None:
    first = make_drain(large_ring, tmp_path, said, perf_log_interval=1)
    put(large_ring, *range(1, drain_module.BATCH - 1))
    for iteration in (drain_module.BATCH - 1, drain_module.BATCH):  # the last one passes the peak: a remark
        large_ring.put(make_step(iteration, model_flops=2 * 10**15))
    session = first._begin()
    assert first._fill(session)
    session.run_file.flush()
    die(first)
    finish(large_ring, make_drain(large_ring, tmp_path, said, perf_log_interval=1))
    assert steps_in(tmp_path) == list(range(1, drain_module.BATCH + 1))


def test_a_successor_that_cannot_read_the_run_file_says_each_failure_once(
    ring: Ring, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Absent(SummarySink):
        name = "absent"

        @classmethod
        def open(cls, context):
            raise ImportError("No module named 'absent'")

    monkeypatch.setattr(
        TrainingPipeline, "presentation", replace(PRESENTATION, views=(*registry.VIEWS, Absent))
    )
    first = make_drain(ring, tmp_path, said)
    put(ring, 1)
    first.cycle()
    die(first)
    said.clear()
    second = make_drain(ring, tmp_path, said)
    with monkeypatch.context() as patch:
        patch.setattr("flagscale_perf.writer.session.os.open", Flaky(files.os.open, 10, only="perf_records"))
        for _ in range(5):  # each opens it to write and to read
            assert not second.cycle()
    assert sorted(line.split(":")[1] for line in said) == [" absent", " run file"]
    finish(ring, second)


def test_a_disk_that_fails_every_other_time_does_not_flood_the_console(
    ring: Ring, tmp_path: Path, said: list[str], full_disk
) -> None:
    drain = make_drain(ring, tmp_path, said)
    drain.cycle()
    for number in range(1, 201):
        full_disk["on"] = number % 2 == 1
        put(ring, number)
        drain.cycle()
    full_disk["on"] = False
    finish(ring, drain)
    assert steps_in(tmp_path) == list(range(1, 201))
    assert [line.split(";")[0] for line in said] == [
        "flagscale_perf: run file: OSError: [Errno 28] No space left on device"
    ]
    assert [r.name for r in records_in(tmp_path) if isinstance(r, EventRecord)] == ["failure", "note"]


def test_a_batch_of_any_size_is_in_the_run_file(large_ring: Ring, tmp_path: Path, said: list[str]) -> None:
    """After hours without a disk: thousands of readings besides a ring full of steps, each with an
    interval.
    """
    drain = make_drain(large_ring, tmp_path, said, perf_log_interval=1)
    month_ns = 30 * 24 * 3600 * SECOND
    drain._instrument._sources = Sources(  # type: ignore[attr-defined]
        iter([([make_reading(month_ns + n) for n in range(1, 4097)], []), *[([], [])] * 9]).__next__
    )
    for iteration in range(1, drain_module.BATCH + 1):
        large_ring.put(
            make_step(
                iteration,
                start_ns=month_ns + iteration,
                model_flops=10**18 + iteration,
                hardware_flops=10**18 + 1,
            )
        )
    finish(large_ring, drain)
    assert steps_in(tmp_path) == list(range(1, drain_module.BATCH + 1))
    records = records_in(tmp_path)
    assert [
        len([r for r in records if isinstance(r, kind)]) for kind in (HardwareRecord, IntervalRecord)
    ] == [4096, drain_module.BATCH]


def test_a_file_that_cannot_be_closed_costs_neither_the_other_files_nor_the_summarys_place(
    ring: Ring, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drain = make_drain(ring, tmp_path, said)
    put(ring, 1)
    drain.cycle()
    real = files.os.close

    def close(fd: int) -> None:
        """As a network file system does: closed it is."""
        is_ours = str(tmp_path) in os.readlink(f"/proc/self/fd/{fd}")
        real(fd)
        if is_ours:
            raise OSError(errno.EIO, "planted")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "close", close)
        finish(ring, drain)
    assert ring.summary == str(next(tmp_path.glob("perf_summary_*.json")))
    assert [line.split(": ")[1] for line in said] == ["text log", "live log", "TensorBoard", "run file"]
    assert not [fd for fd in os.listdir("/proc/self/fd") if str(tmp_path) in _target(fd)]


def test_where_nobody_can_tell_whether_the_summary_is_there_it_is_not(
    ring: Ring, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drain = make_drain(ring, tmp_path, said)
    put(ring, 1)
    drain.cycle()
    monkeypatch.setattr(files.os, "stat", Flaky(files.os.stat, 100, only="perf_summary"))
    finish(ring, drain)
    assert ring.summary == ""


def test_a_third_writer_repeats_neither_what_the_second_had_to_say_nor_the_heading(
    ring: Ring, tmp_path: Path, said: list[str]
) -> None:
    for notes in ([], ["the first has died"], ["the first has died", "the second has died"]):
        drain = make_drain(ring, tmp_path, said, notes=notes, perf_console_output=True)
        put(ring, 1 + len(notes))
        drain.cycle()
        die(drain)
    finish(ring, make_drain(ring, tmp_path, said, perf_console_output=True))
    events = [record.text for record in records_in(tmp_path) if isinstance(record, EventRecord)]
    assert events == ["the first has died", "the second has died"]
    assert [
        sum(word in line for line in said)
        for word in ("Session Started", "the first has died", "the second has died")
    ] == [1, 1, 1]


@pytest.mark.parametrize("said_by_host", [None, "completed", "exception RuntimeError"])
def test_an_end_that_the_user_asked_for_is_no_kill(
    ring: Ring, tmp_path: Path, said: list[str], monkeypatch, said_by_host
) -> None:
    monkeypatch.setenv(stop_note.VARIABLE, str(tmp_path / "note"))
    drain = make_drain(ring, tmp_path / "logs", said)
    put(ring, 1)
    drain.cycle()
    stop_note.leave(str(tmp_path / "note"))
    if said_by_host is not None:
        ring.close(said_by_host, drain._task.anchor.mono_ns)
    drain.run(never_waits, lambda: True)
    assert records_in(tmp_path / "logs")[-1].reason == "stopped by the user"
