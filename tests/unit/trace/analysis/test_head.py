"""The key figures of traces, and from when on a job counts."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.job import open_session
from flagscale_perf.report.format import shown
from flagscale_perf.trace.analysis.head import lead_of, tiles_of
from flagscale_perf.trace.analysis.instrument import read_report
from flagscale_perf.trace.analysis.report import TraceReport
from tests.trace_runs import MS, SECOND, Job, lines_of_call
from tests.unit.trace.analysis.test_sides import grpo


def read(directory: Path, job: Job) -> TraceReport:
    return read_report(open_session(job.write(directory)))


def test_an_rl_jobs_head_says_how_fast_each_end_is_and_which_waits(tmp_path: Path) -> None:
    tiles = [
        (tile.label, shown(tile.value), shown(tile.note)) for tile in tiles_of(read(tmp_path, grpo(70, 20)))
    ]
    assert tiles[:4] == [
        ("generator", "320 samples/s", "generate, 2 processes; waits 30 %: not in a call"),
        ("trainer", "320 samples/s", "train, 1 process; waits 80 %: not in a call"),
        ("train waits", "80 %", "of its time; generate 30 %"),
        ("age of samples", "0 steps", "of train, at most 0; weight versions are not recorded"),
    ]
    assert [label for label, *_ in tiles[4:]] == ["in the queue", "a put", "a get", "a sample waits"]


def test_lines_of_text_have_neither_end(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("\n".join(lines_of_call()))
    assert [tile.label for tile in tiles_of(read_report(open_session(log)))] == [
        "in the queue",
        "a put",
        "a get",
    ]


def test_a_job_counts_from_its_first_call_on(tmp_path: Path) -> None:
    """What a driver put while the workers were starting is no part of the wall time."""
    job = grpo(70, 20, steps=20)
    late = [
        record._replace(start_ns=record.start_ns + 30 * SECOND)
        if hasattr(record, "start_ns") and hasattr(record, "total_ns")
        else record
        for record in job.records
    ]
    first = next(place for place, record in enumerate(late) if hasattr(record, "total_ns"))
    late[first] = late[first]._replace(start_ns=0)
    job.records = late
    found = read(tmp_path, job)
    assert shown(lead_of(found)) == "30.0 s after the first record; shares of the wall time count from it"
    assert found.wall_ns is not None and found.wall_ns <= 2 * SECOND + MS
