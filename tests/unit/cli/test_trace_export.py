"""`flagscale-perf trace-export`: one trace of all files of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flagscale_perf.cli import main
from flagscale_perf.spine.jsonl import encode
from tests.fakes import sample_run
from tests.profile_runs import make_profile, make_profile_header

SESSION = "20240129_103000"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    content = b"".join(map(encode, sample_run()))
    (tmp_path / f"perf_records_{SESSION}.jsonl").write_bytes(content + b"rubbish\n")
    return tmp_path


def test_a_trace_beside_the_reader(run_dir: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(run_dir)
    assert main(["trace-export", "."]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"perf_trace_{SESSION}.json: open it at https://ui.perfetto.dev or chrome://tracing\n"
    assert shown.err.startswith(
        "1 lines are not records and were left out; the first: perf_records_20240129_103000.jsonl:"
    )
    trace = json.loads((run_dir / f"perf_trace_{SESSION}.json").read_text())
    assert trace["otherData"] == {"session": SESSION, "script": "train_gpt.py", "device": "NVIDIA H200"}


def test_to_stdout(run_dir: Path, capsys) -> None:
    assert main(["trace-export", str(run_dir), "--session", SESSION, "-o", "-"]) == 0
    assert len(json.loads(capsys.readouterr().out)["traceEvents"]) > 50


def test_files_of_all_machines_of_a_job_are_one_trace(tmp_path: Path, capsys) -> None:
    make_profile().write(tmp_path)
    header = make_profile_header("20240129_103001", host="node1", boot_id="b")
    make_profile().write(tmp_path, header)
    assert main(["trace-export", str(tmp_path), "-o", "-"]) == 0
    events = json.loads(capsys.readouterr().out)["traceEvents"]
    steps = {event["pid"] for event in events if event["ph"] == "X" and event["name"] == "train 20"}
    assert len(steps) == 4


def test_the_runs_other_instruments_are_named(run_dir: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(run_dir)
    make_profile().write(run_dir, make_profile_header("20240129_103001"))
    assert main(["trace-export", "."]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("perf_trace_20240129_103001.json: ")
    assert shown.err == f"the training session {SESSION} is here, too; --session {SESSION} shows it\n"


def test_several_runs_are_refused_with_what_to_do(run_dir: Path, capsys) -> None:
    assert main(["trace-export", str(run_dir), "a.jsonl", "b.jsonl"]) == 2
    assert "3 runs, but one is exported at a time: give each by itself, with -o;" in capsys.readouterr().err


def test_where_it_cannot_be_written(run_dir: Path, capsys) -> None:
    assert main(["trace-export", str(run_dir), "-o", str(run_dir / "none/trace.json")]) == 2
    there = f"{run_dir}/none"
    assert capsys.readouterr().err == (
        f"-o {there}/trace.json: there is no directory '{there}'; make it, or name another one\n"
    )


def test_a_trace_that_is_cut_short_leaves_the_earlier_one(run_dir: Path, monkeypatch, capsys) -> None:
    def full(*_: object):
        yield "["
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("flagscale_perf.cli.trace_export.trace_lines", full)
    place = run_dir / "trace.json"
    place.write_text("{}")
    before = sorted(run_dir.iterdir())
    assert main(["trace-export", str(run_dir), "-o", str(place)]) == 2
    assert capsys.readouterr().err == (
        f"cannot write '{place}': No space left on device; give another one with -o\n"
    )
    assert place.read_text() == "{}"
    assert sorted(run_dir.iterdir()) == before
