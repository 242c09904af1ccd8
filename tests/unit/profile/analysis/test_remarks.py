"""What a reader must know before any figure."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.profile.analysis.remarks import remarks_of
from flagscale_perf.profile.analysis.report import ProfileReport, report_of
from flagscale_perf.profile.analysis.source import Profile, read_profile
from tests.profile_runs import Profiled, make_profile


def test_nothing_to_say(found: ProfileReport) -> None:
    assert remarks_of(found) == []


def test_no_process(nothing: Profile) -> None:
    assert remarks_of(report_of(nothing))[0].startswith("0 rows: no process has joined the job")


def test_a_window_that_has_not_ended(tmp_path: Path) -> None:
    job = Profiled()
    job.rank(0, 1)
    (said,) = remarks_of(report_of(read_profile(job.write(tmp_path))))
    assert said.startswith("0 rows: no window has ended")


def test_a_reason_and_its_cure(tmp_path: Path) -> None:
    job = Profiled()
    job.window(job.rank(0, 1), reason="another profiler was running", steps=0, events=0)
    (said,) = remarks_of(report_of(read_profile(job.write(tmp_path))))
    assert said == (
        "0 rows: another profiler was running; end the other one (torch.profiler, vLLM's) before the window"
        " begins"
    )


def test_ranks_that_are_missing_and_events_that_were_dropped(tmp_path: Path) -> None:
    job = make_profile(world_size=4, mode="compiled")
    job.window(1, dropped_events=7)
    said = remarks_of(report_of(read_profile(job.write(tmp_path))))
    assert [line.partition(":")[0] for line in said] == [
        "2 of 4 ranks were profiled",
        "7 events were more than a window may keep and are missing from the rows",
        "rank 0, rank 1",
    ]
