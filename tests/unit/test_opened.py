"""A recorded session of any instrument in Python."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flagscale_perf import PerfError, open_run, open_runs
from flagscale_perf.bench.records import BenchPoint
from flagscale_perf.cli import main
from flagscale_perf.profile.records import RowRecord
from flagscale_perf.report import csv
from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.trace.records import CallRecord as FunctionRecord
from flagscale_perf.trace.records import OperationRecord
from tests import sweeps
from tests.every_instrument import JOBS, WRITERS, report_of, write, write_job

pytest.importorskip("pandas")


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "training"])
def test_rows_are_those_of_the_csv(name: str, tmp_path: Path) -> None:
    path = write(name, tmp_path, "completed")
    head, *lines = csv.lines(report_of(name, path))
    frame = open_run(tmp_path, instrument=name).rows()
    assert (list(frame.columns), len(frame)) == (head.rstrip("\r\n").split(","), len(lines))


@pytest.mark.parametrize("name", JOBS)
def test_what_is_of_another_instrument_is_refused(name: str, tmp_path: Path) -> None:
    write(name, tmp_path, "completed")
    with pytest.raises(PerfError, match=rf"recorded by the instrument '{name}', .*instrument='{name}'"):
        open_run(tmp_path)
    other = next(each for each in JOBS if each != name)
    with pytest.raises(PerfError, match=rf"recorded by the instrument '{name}', not by '{other}'"):
        open_run(tmp_path, instrument=other)


@pytest.mark.parametrize("name", ["nothing", "spine", "arguments", "a.b"])
def test_what_is_no_instrument_is_refused(name: str, tmp_path: Path) -> None:
    path = write("rpc", tmp_path, "completed")
    with pytest.raises(PerfError, match=f"the instrument '{name}' is not known"):
        open_run(path, instrument=name)


def test_of_several_instruments_in_a_directory_the_one_asked_for_is_opened(tmp_path: Path) -> None:
    write("training", tmp_path, "completed", session_id="20240129_103000")
    write("rpc", tmp_path, "completed", session_id="20240129_103005")
    assert open_run(tmp_path).header.instrument == "training"
    assert open_run(tmp_path, instrument="rpc").report().title == "Calls of session 20240129_103005"


def test_calls_have_units_in_their_names_and_start_with_the_session(tmp_path: Path) -> None:
    path = write("rpc", tmp_path, "completed")
    run = open_run(path, instrument="rpc")
    assert repr(run) == f"open_run({str(path)!r}, instrument='rpc')"
    calls, first = run.table(CallRecord), next(run.records(CallRecord))
    assert calls["total_ms"][0] == pytest.approx(first.total_ns / 1e6)
    assert calls["sent_gb"][0] == pytest.approx(first.sent_bytes / 1e9)
    assert calls["elapsed_s"][0] == (first.start_ns - run.header.start_mono_ns) / 1e9
    assert len(calls) == len(list(run.records(CallRecord))) and calls["method"][0] == first.method
    assert [each.name for each in run.findings()] == [each["name"] for each in _as_dict(run)["findings"]]


def _as_dict(run):
    return run.report().content.as_dict()


def test_numbers_of_names_are_texts_and_processes_have_labels_of_all_machines(tmp_path: Path) -> None:
    first, _ = write_job("trace", tmp_path, ("completed", "completed"))
    run = open_run(first, instrument="trace")
    operations, calls = run.table(OperationRecord), run.table(FunctionRecord)
    assert set(operations["partition"]) == {"train"} and set(calls["function"]) == {"rollout", "train"}
    assert set(calls["process"]) == {
        f"{title}@{host}" for title in ("Rollout 101", "Train 102") for host in ("node0", "node1")
    }


def test_a_profiles_rows_have_their_modules(tmp_path: Path) -> None:
    run = open_run(write("profile", tmp_path, "completed"), instrument="profile")
    rows = run.table(RowRecord)
    assert "model.layers.0.self_attn.q_proj" in set(rows["module"]) and rows["self_ms"].sum() == 198 + 198


def test_what_is_no_row_of_plain_values_has_no_table(tmp_path: Path) -> None:
    run = open_run(write("bench", tmp_path, "completed"), instrument="bench")
    with pytest.raises(PerfError, match="BenchPoint is no row of plain values; use rows"):
        run.table(BenchPoint)


def test_home_is_expanded_and_an_address_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("rpc", tmp_path, "completed")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(open_run("~/", instrument="rpc").rows())
    with pytest.raises(PerfError, match="'s3://bucket/run' is an address"):
        open_run("s3://bucket/run")


def test_a_run_is_a_job(tmp_path: Path) -> None:
    write("training", tmp_path, "completed")
    alone = open_run(tmp_path)
    assert alone.training is alone
    assert [alone.profile, alone.calls, alone.trace, alone.bench] == [None] * 4
    assert "beside it" not in alone._repr_html_()
    write("profile", tmp_path, "completed", session_id="20240129_103001")
    run = open_run(tmp_path)
    profile = run.profile
    assert (len(run.steps()), run.calls, run.trace) == (40, None, None)
    assert profile is not None and profile.instrument == "profile" and len(profile.rows()) > 0
    assert profile.training is not None and profile.training.path == run.path
    assert [one.session.path for one in run.job.members] == [profile.path]
    shown = run._repr_html_()
    assert "<th>beside it</th><td>profile 20240129_103001</td>" in shown and "MFU" in shown


def test_sub_directories_of_a_job_are_a_run(tmp_path: Path) -> None:
    for name, where in (("training", "training"), ("rpc", "calls")):
        (tmp_path / where).mkdir()
        write(name, tmp_path / where, "completed", pid=7_000)
        shutil.rmtree(tmp_path / where / "made")
    run = open_run(tmp_path)
    assert run.path.parent.name == "training" and run.calls is not None and run.profile is None
    assert run.calls.path.parent.name == "calls" and run.calls.training is not None
    assert open_run(tmp_path, instrument="rpc").path == run.calls.path


def test_jobs_are_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweeps.write(tmp_path, seeds=[1, 2])
    (tmp_path / "calls").mkdir()
    write("rpc", tmp_path / "calls", "completed")
    shutil.rmtree(tmp_path / "calls/made")
    frame = open_runs(tmp_path)
    trained = frame[frame["instrument"] == "training"]
    assert (len(trained), len(frame)) == (32, 33)
    assert list(frame[frame["instrument"] == "rpc"]["directory"]) == ["calls"]
    best = trained.groupby(["tensor_parallel", "micro_batch_size"])["mfu"].mean().idxmax()
    assert best == (1, 2)
    assert main(["runs", str(tmp_path), "--format", "csv"]) == 0
    head = capsys.readouterr().out.splitlines()[0].split(",")
    assert list(frame.columns) == head
    chosen = open_runs(tmp_path, where=["tp=2", "seed=1"], sort="mfu")
    speeds = chosen[chosen["instrument"] == "training"]["mfu"]
    assert len(speeds) == 8 and list(speeds) == sorted(speeds, reverse=True)
    with pytest.raises(PerfError, match="no run has that; tensor_parallel is 1, 2"):
        open_runs(tmp_path, where=["tp=3"])
