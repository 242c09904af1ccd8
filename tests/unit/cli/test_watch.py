"""`flagscale-perf watch` without a terminal; with one: tests/processes/test_watch.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flagscale_perf.analysis.instrument import load
from flagscale_perf.analysis.job import Job
from flagscale_perf.cli import main
from flagscale_perf.spine.jsonl import encode
from tests.every_instrument import beside
from tests.fakes import make_header, make_step, sample_run
from tests.profile_runs import make_profile, make_profile_header
from tests.run_files import left_behind

SESSION = "20240129_103000"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    content = b"".join(map(encode, sample_run()))
    (tmp_path / f"perf_records_{SESSION}.jsonl").write_bytes(content + b"rubbish\n")
    return tmp_path


def test_one_frame_for_scripts(run_dir: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")  # the path is on one line
    assert main(["watch", str(run_dir), "--once"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"COMPLETED  session {SESSION}"
    assert lines[-2:] == [
        "left out, lines that are no records: 1",
        str(run_dir / f"perf_records_{SESSION}.jsonl"),
    ]


def test_the_newest_session_or_the_one_asked_for(run_dir: Path, capsys) -> None:
    newer = run_dir / f"perf_records_{SESSION}_2.jsonl"
    newer.write_bytes(encode(make_header(f"{SESSION}_2")) + encode(make_step(1)))
    left_behind(newer)
    assert main(["watch", str(run_dir), "--once"]) == 0
    assert main(["watch", str(run_dir), "--once", "--session", SESSION]) == 0
    titles = [line for line in capsys.readouterr().out.splitlines() if "  session " in line]
    assert titles == [f"KILLED  session {SESSION}_2", f"COMPLETED  session {SESSION}"]


def test_a_session_without_a_screen_is_passed_over(run_dir: Path, capsys) -> None:
    """That of a training's profile, which begins later than the training's own."""
    make_profile().write(run_dir, make_profile_header(f"{SESSION}_2"))
    assert main(["watch", str(run_dir), "--once"]) == 0
    assert capsys.readouterr().out.startswith(f"COMPLETED  session {SESSION}\n")


def test_the_leading_session_is_shown_and_the_others_are_named_with_what_they_found(
    tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    beside(tmp_path, "training", 10, 80, (7,), pid=7)
    beside(tmp_path, "rpc", 20, 70, (7,), pid=7)  # is newer, and has a screen of its own
    beside(tmp_path, "profile", 30, 40, (7,), pid=7)
    assert main(["watch", str(tmp_path), "--once"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("COMPLETED  session 20240129_100010")
    named = [line for line in lines if line.startswith(("rpc session", "profile session"))]
    (calls,) = Job(tmp_path).whole().of("rpc")
    first = load("rpc").report(calls).findings.found[0].title
    assert named == [
        f"rpc session 20240129_100020: {first}",
        "profile session 20240129_100030: nothing found",
    ]
    assert main(["watch", str(tmp_path), "--once", "--session", "20240129_100020"]) == 0
    assert "profile session" not in capsys.readouterr().out


def test_without_a_terminal_it_says_what_to_do(run_dir: Path, capsys) -> None:
    assert main(["watch", str(run_dir)]) == 2
    assert capsys.readouterr().err == "watch needs a terminal for its screen; use --once in scripts\n"


def test_without_its_package_it_says_what_to_do(
    run_dir: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "flagscale_perf.report.watch", raising=False)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert main(["watch", str(run_dir), "--once"]) == 2
    assert capsys.readouterr().err == (
        "watch needs rich, which is not installed\n"
        f"install it: {sys.executable} -m pip install 'rich>=13', or use flagscale-perf report\n"
    )


def test_it_loads_nothing_heavy(run_dir: Path, run_python) -> None:
    code = (
        "import sys; from flagscale_perf.cli import main; main(['watch', sys.argv[1], '--once']); "
        "print(*sys.modules)"
    )
    loaded = run_python("-c", code, run_dir).stdout.splitlines()[-1].split()
    assert "rich.console" in loaded
    assert {"torch", "numpy", "matplotlib", "pandas", "prometheus_client", "tensorboard"} & set(
        loaded
    ) == set()


def test_a_job_in_sub_directories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    beside(tmp_path / "training", "training", 10, 50, pid=7)
    beside(tmp_path / "calls", "rpc", 20, 40)
    assert main(["watch", str(tmp_path), "--once"]) == 0
    shown = capsys.readouterr().out
    assert "session 20240129_100010" in shown and "rpc session 20240129_100020: " in shown


def test_what_is_beside_another_training_is_not_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    beside(tmp_path, "training", 10, 50, pid=7)
    beside(tmp_path, "training", 11, 50, pid=9)
    beside(tmp_path, "profile", 20, 30, (7,))
    assert main(["watch", str(tmp_path), "--once"]) == 0
    shown = capsys.readouterr().out
    assert "session 20240129_100011" in shown and "profile session" not in shown
