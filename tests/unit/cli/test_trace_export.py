"""`flagscale-perf trace-export`: one trace of all files of a run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from flagscale_perf.cli import main
from flagscale_perf.spine.jsonl import encode
from tests.fakes import sample_run
from tests.profile_runs import make_profile, make_profile_header
from tests.traces import check, of_json

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
    assert shown.out.splitlines() == [
        "about 9.4 kB: 48 slices, 0 arrows",
        f"perf_trace_{SESSION}.json: open it at https://ui.perfetto.dev or chrome://tracing",
    ]
    assert shown.err.startswith(
        "left out, lines that are no records: 1; the first: perf_records_20240129_103000.jsonl:"
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
    trace = of_json(capsys.readouterr().out)
    steps = {one.process for one in trace.slices if one.name == "train 20"}
    assert steps == {f"rank {rank} on node{node}" for rank in (0, 1) for node in (0, 1)}


def test_the_whole_job_is_one_trace_and_says_why(run_dir: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(run_dir)
    make_profile().write(run_dir, make_profile_header("20240129_103001"))
    assert main(["trace-export", "."]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1].startswith(f"perf_trace_{SESSION}.json: ")
    assert shown.err.startswith("with the profile session 20240129_103001: ")
    trace = of_json((run_dir / f"perf_trace_{SESSION}.json").read_bytes())
    check(trace)
    assert {one.row for one in trace.slices} >= {"iterations", "profiled steps"}
    assert main(["trace-export", ".", "--session", SESSION, "-o", "alone.json"]) == 0
    alone = of_json((run_dir / "alone.json").read_bytes())
    for each in (trace, alone):  # a step is in the same place
        assert [one.begin_ns for one in each.slices if one.name == "iteration 8"] == [800_000_000]


def test_a_selection(run_dir: Path, capsys) -> None:
    words = ["trace-export", str(run_dir), "-o", "-", "--ranks", "0", "--steps"]
    assert main([*words, "8:9"]) == 0
    trace = of_json(capsys.readouterr().out)
    assert [one.name for one in trace.slices if one.row == "iterations" and one.name[0] == "i"] == [
        f"iteration {n}" for n in (7, 8, 9, 10)
    ]
    assert main([*words, "80"]) == 2
    assert "--steps 80:80: no such steps are recorded; there are 1 to 25" in capsys.readouterr().err
    for wrong in ("9:8", "x", "-1"):
        with pytest.raises(SystemExit):
            main([*words, wrong])
    assert "are no steps; write for example 20:22" in capsys.readouterr().err


def test_what_is_too_much_is_written_only_if_that_is_meant(run_dir: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("flagscale_perf.cli.trace_export.MOST_BYTES", 5e3)
    words = ["trace-export", str(run_dir), "-o", str(run_dir / "t.json")]
    assert main(words) == 2
    assert capsys.readouterr().err == (
        "the trace would have more than 5.0 kB, which few programs open: choose --steps A:B or --ranks LIST,"
        " or add --yes\n"
    )
    assert not (run_dir / "t.json").exists()
    assert main([*words, "--yes"]) == 0


def test_a_name_of_perfettos_format_needs_its_package(run_dir: Path, monkeypatch, capsys) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == "perfetto"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "perfetto", None)
    for name in ("pftrace", "archive"):
        monkeypatch.delitem(sys.modules, f"flagscale_perf.report.{name}", raising=False)
        monkeypatch.delattr(f"flagscale_perf.report.{name}", raising=False)
    for name in ("t.pftrace", "t.tar"):
        assert main(["trace-export", str(run_dir), "-o", str(run_dir / name)]) == 2
        what, line = capsys.readouterr().err.splitlines()
        assert what == "a trace in Perfetto's protobuf needs perfetto, which is not installed"
        assert line.startswith(f"install it: {sys.executable} -m pip install ")
        assert line.endswith("'perfetto>=0.50', or write a name that ends in .json")


def test_without_opentelemetry_it_says_how_to_get_it(run_dir: Path, monkeypatch, capsys) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)  # what is imported already would be found
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "flagscale_perf.report.otlp", raising=False)
    assert main(["trace-export", str(run_dir), "--format", "otlp"]) == 2
    what, line = capsys.readouterr().err.splitlines()
    assert what == "--format otlp needs opentelemetry-exporter-otlp-proto-http, which is not installed"
    assert line.startswith(f"install it: {sys.executable} -m pip install ")
    assert line.endswith("opentelemetry-exporter-otlp-proto-http>=1.30', or take another --format")


def test_a_format_that_there_is_not_and_a_place_without_room(run_dir: Path, capsys) -> None:
    assert main(["trace-export", str(run_dir), "--format", "otpl"]) == 2
    assert capsys.readouterr().err == (
        "--format otpl: this run can be written as perfetto, otlp; did you mean otlp?\n"
    )
    assert main(["trace-export", str(run_dir), "--with", "a.json", "-o", "t.json"]) == 2
    assert capsys.readouterr().err == (
        "--with: only an archive has room for other traces; write -o NAME.tar\n"
    )


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
    def full(drawing: object, sample: object = None):
        yield b"["
        if sample is not None:
            return
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("flagscale_perf.report.trace.pieces", full)
    place = run_dir / "trace.json"
    place.write_text("{}")
    before = sorted(run_dir.iterdir())
    assert main(["trace-export", str(run_dir), "-o", str(place)]) == 2
    assert capsys.readouterr().err.endswith(
        f"cannot write '{place}': No space left on device; give another one with -o\n"
    )
    assert place.read_text() == "{}"
    assert sorted(run_dir.iterdir()) == before
