"""`flagscale-perf report`."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.cli import main
from tests.conftest import RunPython
from tests.golden import golden

NAME = "perf_records_20240129_103000.jsonl"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / NAME).write_text(golden("perf_records.jsonl"))
    return tmp_path


@pytest.mark.parametrize("words", [[], ["--session", "20240129_103000"]])
def test_a_directory(run_dir: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(["report", str(run_dir), *words]) == 0
    assert capsys.readouterr() == (golden("report.txt"), "")


def test_a_file(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run_dir / NAME)]) == 0
    assert capsys.readouterr() == (golden("report.txt"), "")


def test_where_nothing_is_found_it_says_so(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run_dir), "--session", "x"]) == 2
    assert capsys.readouterr() == ("", f"no session 'x' in '{run_dir}'; there are 20240129_103000\n")


def test_it_needs_no_torch(run_dir: Path, run_python: RunPython) -> None:
    code = "import sys; from flagscale_perf.cli import main; main(sys.argv[1:]); print([m for m in ('torch', 'numpy') if m in sys.modules])"
    assert run_python("-c", code, "report", run_dir).stdout == golden("report.txt") + "[]\n"


def test_all_sessions_of_a_directory(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run_dir), "--all-sessions"]) == 0
    out, err = capsys.readouterr()
    assert (out.splitlines()[0], err) == (f"1 session in {run_dir}, as restarts of one experiment", "")
    assert main(["report", str(run_dir / NAME), "--all-sessions"]) == 2
    assert "give the directory of --perf-log-dir" in capsys.readouterr().err
