"""Which sessions are one job, which of them leads, and why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flagscale_perf.analysis import whole
from flagscale_perf.analysis.job import Job, sessions_below
from flagscale_perf.analysis.job_report import report_of
from flagscale_perf.analysis.jobs import as_jobs
from flagscale_perf.analysis.whole import Whole
from flagscale_perf.spine.errors import PerfError
from tests.every_instrument import beside
from tests.run_files import NO_PID


def _said(whole: Whole) -> list[str]:
    return [f"{each.session.instrument}: {each.evidence}" for each in whole.members]


def test_a_training_leads_what_was_recorded_beside_it(tmp_path: Path) -> None:
    training = beside(tmp_path, "training", 10, 70, pid=7)
    beside(tmp_path, "profile", 20, 30, (7, 8))
    beside(tmp_path / "queue", "trace", 5, 70, (6,), host="node1", boot_id="other")
    beside(tmp_path, "rpc", 71, 80)  # began when the training was over
    whole = Job(tmp_path).whole()  # the newest session is of the calls: it is a job of its own
    assert (whole.lead.instrument, whole.members) == ("rpc", [])
    (tmp_path / "perf_records_20240129_100071.jsonl").unlink()
    whole = Job(tmp_path).whole()
    assert whole.lead.path == training
    assert whole.apart == []
    assert _said(whole) == [
        "trace: in the directory queue beside it; 60.0 s of its 65.0 s lie in it",
        "profile: recorded process 7 of it; 10.0 s of its 10.0 s lie in it",
    ]
    assert [each.is_on_clock for each in whole.members] == [False, True]


def test_a_session_or_a_file_that_is_asked_for_stands_alone(tmp_path: Path) -> None:
    training = beside(tmp_path, "training", 10, 70)
    profile = beside(tmp_path, "profile", 20, 30)
    assert Job(training).whole().sessions[0].path == training
    alone = Job(tmp_path, "20240129_100020").whole()
    assert [one.path for one in alone.sessions] == [profile]


def test_of_two_trainings_at_once_a_profile_is_of_the_one_whose_process_it_recorded(tmp_path: Path) -> None:
    first = beside(tmp_path, "training", 10, 70, pid=7)
    second = beside(tmp_path, "training", 11, 70, pid=9)
    beside(tmp_path, "profile", 20, 30, (7,))
    assert Job(tmp_path).whole().lead.path == first
    (tmp_path / "perf_records_20240129_100020.jsonl").unlink()
    beside(tmp_path, "profile", 21, 31, (5,))
    whole = Job(tmp_path).whole()
    assert whole.lead.instrument == "profile"  # alone, as nothing says of which training it is
    first.unlink()
    assert [one.path for one in Job(tmp_path).whole().sessions][0] == second


@pytest.mark.parametrize("instrument", ["training", "trace"])
def test_an_experiment_measures_by_itself(tmp_path: Path, instrument: str) -> None:
    beside(tmp_path, "bench", 10, 30)
    lead = beside(tmp_path, instrument, 20, 70)
    whole = Job(tmp_path).whole()
    assert whole.lead.path == lead
    assert whole.apart == ["bench session 20240129_100010 measures by itself"]


def test_a_directory_whose_sub_directories_hold_one_job_is_that_job(tmp_path: Path) -> None:
    training = beside(tmp_path / "training", "training", 10, 70, pid=7)
    beside(tmp_path / "queue", "trace", 12, 70, (7,), pid=6)
    beside(tmp_path / "calls", "rpc", 15, 60)
    whole = Job(tmp_path).whole()
    assert whole.lead.path == training
    assert _said(whole) == [
        "trace: recorded process 7 of it; 58.0 s of its 58.0 s lie in it",
        "rpc: in the directory calls beside it; 45.0 s of its 45.0 s lie in it",
    ]
    assert [one.instrument for one in Job(tmp_path).whole("trace").sessions] == ["trace"]
    beside(tmp_path / "another", "training", 100, 170)  # now there are two
    with pytest.raises(PerfError) as refused:
        Job(tmp_path).whole()
    assert "another" in str(refused.value) and "training" in str(refused.value)


_DAMAGED = {
    "the file is empty": lambda _: b"",
    "neither JSON nor text": lambda data: b"\0\xff" * 99 + data[200:],
    "schema version 99 is newer": lambda data: data.replace(b'"schema_version":1', b'"schema_version":99', 1),
    "the instrument 'dance' is not known": lambda data: data.replace(b'"profile"', b'"dance"', 1),
}


@pytest.mark.parametrize("why", _DAMAGED)
def test_a_newer_file_that_cannot_be_read_hides_no_job_that_it_was_recorded_beside(
    tmp_path: Path, why: str
) -> None:
    training = beside(tmp_path, "training", 10, 50)
    damaged = beside(tmp_path, "profile", 20, 30)
    damaged.write_bytes(_DAMAGED[why](damaged.read_bytes()))
    found = Job(tmp_path)
    assert found.awaited is None
    whole = found.whole()
    assert [one.path for one in whole.sessions] == [training]
    (said,) = whole.apart
    assert said.startswith("a file of the same time cannot be read: ") and why in said
    assert report_of(whole).content.as_dict()["job"]["apart"] == [said]
    beside(tmp_path, "training", 110, 150).write_bytes(b"")  # what began later is another job
    assert Job(tmp_path).chosen().path.name == "perf_records_20240129_100110.jsonl"


def test_copied_files_are_of_the_job_whatever_their_times_of_change(tmp_path: Path) -> None:
    training = beside(tmp_path, "training", 10, 50)
    profile = beside(tmp_path, "profile", 20, 30)
    for path in (training, profile):
        os.utime(path, (0, 0))
    assert [one.path for one in Job(tmp_path).whole().sessions] == [training, profile]


def test_an_instrument_that_is_asked_for_is_found_outside_of_the_newest_job_too(tmp_path: Path) -> None:
    training, bench = beside(tmp_path, "training", 10, 50), beside(tmp_path, "bench", 20, 30)
    beside(tmp_path, "profile", 110, 120)
    assert [Job(tmp_path).whole(name).lead.path for name in ("training", "bench")] == [training, bench]
    with pytest.raises(PerfError) as refused:
        Job(tmp_path).whole("trainin")
    assert str(refused.value) == (
        f"no session of the instrument 'trainin' in '{tmp_path}'; there are sessions of bench, profile,"
        " training; did you mean training?"
    )


def test_each_session_is_read_once_to_know_whose_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[Path]()
    own = whole._read_processes
    monkeypatch.setattr(whole, "_read_processes", lambda one: read.append(one.path) or own(one))
    for begin_s in (10, 11, 12):
        beside(tmp_path, "training", begin_s, 50, pid=begin_s)
        beside(tmp_path, "profile", begin_s + 10, 40, (begin_s,))
    assert len(Job(tmp_path).whole().members) == 1
    assert sorted(read) == sorted({*read}) and len(read) <= 6


def test_a_session_of_which_only_the_beginning_was_recorded_is_of_its_job(tmp_path: Path) -> None:
    training, profile = beside(tmp_path, "training", 10, 50), beside(tmp_path, "profile", 20, 30)
    head, _ = profile.read_bytes().split(b"\n", 1)
    profile.write_bytes(head + b"\n")  # killed before its first window had ended
    found = Job(tmp_path).whole()
    assert [one.path for one in found.sessions] == [training, profile]
    assert _said(found) == [f"profile: recorded process {NO_PID} of it; began in it"]
    (lead,) = as_jobs(sessions_below(tmp_path)).sessions
    assert lead.path == training
