"""`flagscale-perf bench` as a user types it."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.bench import experiment
from flagscale_perf.bench.analysis.source import read_bench
from flagscale_perf.bench.experiment import Experiment, Plan
from flagscale_perf.bench.recording import Clock, Part
from flagscale_perf.cli import bench as command
from flagscale_perf.cli import main
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import encode
from tests.fakes import make_header


def _measure(part: Part) -> None:
    part.point(
        "time", "s", {"op": "copy", "rank": 0, "size_bytes": 10**9, "moved_bytes": 2 * 10**9}, [0.5], Clock(1)
    )


def _break(part: Part) -> None:
    _measure(part)
    raise PerfError("rank 1 failed: out of memory")


def _interrupt(part: Part) -> None:
    _measure(part)
    raise KeyboardInterrupt


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch):
    """Experiments whose measuring takes no time."""

    def put(**measures) -> None:
        def arguments(parser: ArgumentParser) -> None:
            parser.add_argument("--model", help="of both")

        plans = {
            name: Experiment(arguments, lambda args, measure=measure: _plan(args, measure))
            for name, measure in measures.items()
        }
        monkeypatch.setattr(command, "EXPERIMENTS", dict.fromkeys(plans, ""))
        monkeypatch.setattr(command, "HELP", dict.fromkeys(plans, "a stand-in"))
        monkeypatch.setattr(command, "load", plans.__getitem__)

    return put


def _plan(args: Namespace, measure) -> Plan:
    if args.model == "none":
        raise PerfError("--model none: there is no such model")
    return Plan(1, measure)


def _only(directory: Path):
    (path,) = directory.glob("perf_records_*.jsonl")
    return read_bench(open_session(path))


def test_what_is_measured_is_reported(stand_in, tmp_path: Path, capsys) -> None:
    stand_in(bandwidth=_measure)
    assert main(["bench", "bandwidth", "-o", str(tmp_path)]) == 0
    assert "memory bandwidth  4 GB/s" in capsys.readouterr().out  # 2 GB in 0.5 s
    found = _only(tmp_path)
    assert found.parts["bandwidth"].state == "complete"
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {
        found.path.name,
        f"bandwidth_test_{found.header.session_id}.json",
        "plots/bandwidth_analysis.png",
        "plots/performance_report.md",
        "report.html",
    }
    assert (tmp_path / "plots/bandwidth_analysis.png").read_bytes().startswith(b"\x89PNG")
    content = json.loads((tmp_path / f"bandwidth_test_{found.header.session_id}.json").read_text())
    assert (content["session"], content["state"], content["bandwidths"][0]["algbw_GBps"]) == (
        found.header.session_id,
        "complete",
        4.0,
    )


def test_files_are_made_again_from_the_run_file(stand_in, tmp_path: Path, capsys) -> None:
    stand_in(bandwidth=_measure)
    assert main(["bench", "bandwidth", "-o", str(tmp_path / "run")]) == 0
    assert main(["bench", "report", str(tmp_path / "run"), "--out", str(tmp_path / "again")]) == 0
    for name in ("plots/performance_report.md", "plots/bandwidth_analysis.png"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


def test_a_run_of_another_instrument_is_refused(tmp_path: Path, capsys) -> None:
    (tmp_path / "perf_records_20240129_103000.jsonl").write_bytes(encode(make_header()))
    assert main(["bench", "report", str(tmp_path)]) == 2
    assert "was recorded by the instrument 'training', not by 'bench'" in capsys.readouterr().err


def test_without_plotly_there_is_no_page_and_everything_else(
    stand_in, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    def render(_):
        raise PerfError("--format html needs plotly, which is not installed")

    monkeypatch.setattr("flagscale_perf.report.html.render", render)
    stand_in(bandwidth=_measure)
    assert main(["bench", "bandwidth", "-o", str(tmp_path)]) == 0
    assert "--format html needs plotly, which is not installed\n" in capsys.readouterr().err
    assert (tmp_path / "plots/bandwidth_analysis.png").exists() and not (tmp_path / "report.html").exists()


def test_one_that_fails_keeps_what_it_has_and_the_next_one_runs(stand_in, tmp_path: Path, capsys) -> None:
    stand_in(bandwidth=_break, latency=_measure)
    assert main(["bench", "all", "-o", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("bandwidth: rank 1 failed: out of memory\n")
    assert "bandwidth is partial: rank 1 failed: out of memory (1 point)" in out
    states = {name: part.state for name, part in _only(tmp_path).parts.items()}
    assert states == {"bandwidth": "partial: rank 1 failed: out of memory", "latency": "complete"}


def test_an_interrupt_leaves_a_partial_run_and_says_one_line(stand_in, tmp_path: Path, capsys) -> None:
    stand_in(bandwidth=_interrupt)
    assert main(["bench", "bandwidth", "-o", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "interrupted: what was measured is kept, and marked as partial\n"
    found = _only(tmp_path)
    assert (found.state, found.parts["bandwidth"].state) == ("interrupted", "partial: interrupted")
    assert len(found.parts["bandwidth"].points) == 1


def test_what_is_wrong_at_once_writes_nothing(stand_in, tmp_path: Path, capsys) -> None:
    stand_in(bandwidth=_measure)
    assert main(["bench", "bandwidth", "--model", "none", "-o", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "--model none: there is no such model\n"
    assert list(tmp_path.iterdir()) == []


def test_every_experiment_can_be_loaded() -> None:
    assert list(experiment.EXPERIMENTS) == list(experiment.HELP)
    assert all(isinstance(experiment.load(name), Experiment) for name in experiment.EXPERIMENTS)


def test_what_a_directory_is_called_moves_no_cursor(stand_in, tmp_path: Path, capsys) -> None:
    stand_in(bandwidth=_measure)
    assert main(["bench", "bandwidth", "-o", str(tmp_path / "\x1b[2J")]) == 0
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert "\\x1b[2J" in shown.out
