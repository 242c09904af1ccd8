"""A profile as every format shows it."""

from __future__ import annotations

import fcntl
from pathlib import Path

from flagscale_perf.analysis.blocks import Table, Waterfall
from flagscale_perf.analysis.job import open_session
from flagscale_perf.profile.analysis import files
from flagscale_perf.profile.analysis.blocks import communication, remarks_of, report_of, rows_of
from flagscale_perf.profile.analysis.instrument import report_of as found_of
from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.profile.analysis.source import Profile, read_profile
from flagscale_perf.profile.records import BeginRecord
from flagscale_perf.report import text
from flagscale_perf.report.format import cells
from tests.golden import golden
from tests.profile_runs import Profiled, make_profile


def test_as_text(found: ProfileReport) -> None:
    assert text.render(report_of(found)) == golden("profile_report.txt")


def test_rows_for_a_spreadsheet(found: ProfileReport) -> None:
    head, first, *rest = rows_of(found)
    assert dict(zip(head, first, strict=True)) == {
        "rank": "rank 0",
        "step_phase": "train",
        "phase": "forward",
        "layer": "embed_tokens",
        "module": "model.embed_tokens",
        "kind": "embedding",
        "op": "aten::embedding",
        "runs_per_step": 1,
        "self_ns_per_step": 2e6,
        "total_ns_per_step": 2e6,
        "device_ns_per_step": None,
        "flops_per_step": None,
        "moved_bytes_per_step": 2e6,
    }
    assert len(rest) == 25


def test_0_rows_are_a_failure_with_a_reason(nothing: Profile) -> None:
    report = report_of(found_of(nothing))
    assert report.complaint.startswith("0 rows: no process has joined the job")
    assert report.sections == []


def test_nothing_to_say(found: ProfileReport) -> None:
    assert remarks_of(found) == []


def test_no_process(nothing: Profile) -> None:
    assert remarks_of(found_of(nothing))[0].startswith("0 rows: no process has joined the job")


def test_a_window_that_has_not_ended(tmp_path: Path) -> None:
    job = Profiled()
    job.rank(0, 1)
    (said,) = remarks_of(found_of(read_profile(open_session(job.write(tmp_path)))))
    assert said.startswith("0 rows: no window has ended")


def test_a_window_that_was_lost_with_its_process(tmp_path: Path) -> None:
    """Not one that is under way, and none in files of earlier versions, which do not say when one begins."""
    job = make_profile()
    for number, iteration in enumerate((20, 40, None)):
        job.add(BeginRecord, 1, start_ns=number, iteration=iteration)
    (said,) = remarks_of(found_of(read_profile(open_session(job.write(tmp_path, end="killed")))))
    assert said == "rank 0: the window from step 40 on is lost: it was never written"
    job.records.pop()
    path = job.write(tmp_path, end=None)
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert remarks_of(found_of(read_profile(open_session(path)))) == []


def test_a_reason_and_its_cure(tmp_path: Path) -> None:
    job = Profiled()
    job.window(job.rank(0, 1), reason="another profiler was running", steps=0, events=0)
    (said,) = remarks_of(found_of(read_profile(open_session(job.write(tmp_path)))))
    assert said == (
        "0 rows: another profiler was running; end the other one (torch.profiler, vLLM's) before the window"
        " begins"
    )


def test_ranks_that_are_missing_and_events_that_were_dropped(tmp_path: Path) -> None:
    job = make_profile(world_size=4, mode="compiled")
    job.window(1, dropped_events=7)
    said = remarks_of(found_of(read_profile(open_session(job.write(tmp_path)))))
    assert [line.partition(":")[0] for line in said] == [
        "2 of 4 ranks were profiled",
        "7 events were more than a window may keep and are missing from the rows",
        "rank 0, rank 1",
    ]


def test_waiting_is_told_from_the_transfer(found: ProfileReport) -> None:
    waits, speeds, table, lates = communication(found)
    assert isinstance(waits, Waterfall)
    assert isinstance(speeds, Waterfall)
    assert isinstance(table, Table)
    assert isinstance(lates, Table)
    assert [[part.value for part in lane.parts] for lane in waits.lanes] == [[3, 10, 0], [0, 10, 0]]
    assert [(lane.label, lane.parts[0].value) for lane in speeds.lanes] == [("TP all_reduce", 0.2)]
    assert cells(table)[1][:8] == [
        *("rank 0", "TP", "gloo:all_reduce", "4", "26.000", "6.000", "20.000", "0.000"),
    ]
    assert cells(lates)[1] == ["rank 1", "model.layers.0.self_attn, forward", "2 of 4", "6.000", "6.000"]


def test_nothing_without_a_collective(nothing: Profile) -> None:
    assert communication(found_of(nothing)) == []


def test_where_no_step_was_recorded_there_is_nothing_to_judge(nothing: Profile) -> None:
    found = found_of(nothing)
    report = report_of(found)
    assert report.findings is not None
    said = "othing to judge: no profiled step was recorded"
    assert said in report.findings.none_found and said in files.readme(found, report, [])
