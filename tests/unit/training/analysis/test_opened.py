"""A recorded run in Python: typed, of any state, without pandas."""

from __future__ import annotations

import fcntl
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf import PerfError, open_run
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import RunEnd
from flagscale_perf.training.records import IntervalRecord, StepRecord
from tests.fakes import make_header, make_step, sample_run
from tests.golden import golden
from tests.run_files import left_behind

NAME = "perf_records_20240129_103000.jsonl"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / NAME).write_bytes(b"".join(map(encode, sample_run())))
    return tmp_path


def test_what_a_run_says_of_itself(run_dir: Path) -> None:
    for run in (open_run(run_dir), open_run(str(run_dir / NAME)), open_run(run_dir, "20240129_103000")):
        assert (run.path, run.header.session_id) == (run_dir / NAME, "20240129_103000")
        assert (run.facts.device, run.facts.world_size, run.options.perf_log_interval) == (
            "NVIDIA H200",
            8,
            10,
        )
        assert repr(run) == f"open_run('{run_dir / NAME}')"


def test_its_records_one_by_one(run_dir: Path) -> None:
    run = open_run(run_dir)
    assert list(run.records()) == sample_run()
    assert [step.iteration for step in run.records(StepRecord)] == [*range(1, 21), 23, 24, 25]
    assert [interval.iteration for interval in run.records(IntervalRecord)] == [10, 20, 25]
    assert [end.reason for end in run.records(RunEnd)] == ["completed"]


def test_its_summary_and_its_report_are_those_of_the_files(run_dir: Path) -> None:
    run = open_run(run_dir)
    assert run.summary() == json.loads(golden("perf_summary.json"))
    assert run.report().overview.end_reason == "completed"
    assert run.findings() == run.report().findings


def test_a_run_without_an_end_was_killed_unless_it_lives(run_dir: Path) -> None:
    path = run_dir / NAME
    path.write_bytes(
        b"".join(map(encode, [make_header(), make_step(1, warmup=1), make_step(2)])) + b"rubbish\n"
    )
    run = open_run(path)
    assert (run.is_live(), run.report().overview.end_reason) == (None, "not known")
    assert run.summary()["session_info"]["end_reason"] == "not known"
    run = open_run(left_behind(path))
    assert (run.is_live(), run.report().overview.end_reason) == (False, "killed")
    assert run.summary()["session_info"]["end_reason"] == "killed"
    assert (run.report().reading.skipped, len(list(run.records(StepRecord)))) == (1, 2)
    with path.open("ab") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        assert (run.is_live(), run.report().overview.end_reason) == (True, "running")
        writer.write(encode(make_step(3)))
        writer.flush()
        assert [step.iteration for step in run.records(StepRecord)] == [1, 2, 3]


def test_what_is_no_training_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PerfError, match="does not exist; give the directory of --perf-log-dir"):
        open_run(tmp_path / "nowhere")
    (tmp_path / NAME).write_bytes(encode(replace(make_header(), instrument="rpc")))
    with pytest.raises(PerfError, match="recorded by the instrument 'rpc', not by 'training'; open_run"):
        open_run(tmp_path)
    (tmp_path / NAME).write_bytes(encode(make_header("nonsense")))
    with pytest.raises(PerfError, match="'nonsense' is not a session id"):
        open_run(tmp_path)


def test_without_pandas_everything_but_the_tables_is_there(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    run = open_run(run_dir)
    assert len(list(run.records())) == len(sample_run())
    for table in (run.steps, run.phases, run.intervals, run.ranks, run.events):
        with pytest.raises(PerfError) as refused:
            table()
        assert str(refused.value) == (
            "a table of a run needs pandas, which is not installed\n"
            f"install it: {sys.executable} -m pip install pandas, or use records() or report()"
        )
