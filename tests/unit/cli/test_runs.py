"""`flagscale-perf runs`: every session of a directory, in every format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flagscale_perf.cli import main
from tests.golden import golden
from tests.profile_runs import make_profile, make_profile_header
from tests.rpc_sessions import make_call, write_run
from tests.run_files import steady, write


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two runs."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "perf_records_20240129_103000.jsonl", steady(40))
    return tmp_path


@pytest.mark.parametrize(
    ("form", "begin"),
    [
        ("text", "2 runs in "),
        ("markdown", "# 2 runs in "),
        ("html", "<!DOCTYPE html>"),
        ("json", "{"),
        ("csv", "directory,session_id,end_reason,"),
    ],
)
def test_each_format_is_printed_or_written(directory, tmp_path, capsys, form, begin) -> None:
    target = tmp_path / "out"
    assert main(["runs", str(directory), "--format", form]) == 0
    printed = capsys.readouterr().out
    assert main(["runs", str(directory), "--format", form, "-o", str(target)]) == 0
    assert target.read_text() == printed and printed.startswith(begin)


def test_nothing_to_list_is_a_mistake(tmp_path, capsys) -> None:
    assert main(["runs", str(tmp_path)]) == 2
    assert "no perf_records_*.jsonl in or below" in capsys.readouterr().err


def test_where_nothing_can_be_read_the_reasons_are_listed(tmp_path, capsys) -> None:
    (tmp_path / "perf_records_20240129_103000.jsonl").write_bytes(b"\x00")
    assert main(["runs", str(tmp_path), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["runs"], len(found["unread"])) == ([], 1)


def test_a_place_that_cannot_be_written(directory, capsys) -> None:
    assert main(["runs", str(directory), "-o", str(directory)]) == 2
    assert capsys.readouterr().err == f"-o {directory}: is a directory; name a file in it\n"


def test_sessions_of_other_instruments_stand_below(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("service/calls", "training", "models/profile"):
        (tmp_path / name).mkdir(parents=True)
    write_run(tmp_path / "service/calls", [make_call(1)])
    make_profile().write(tmp_path / "models/profile")
    (tmp_path / "training/perf_records_20240129_103000.jsonl").write_text(golden("perf_records.jsonl"))
    assert main(["runs", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("1 run in ") and "Sessions of other instruments" in shown
    assert "calls: " in shown and "profile: " in shown
    assert main(["runs", str(tmp_path), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["runs"]) == 1
    assert [(one["directory"], one["instrument"]) for one in found["sessions"]] == [
        ("models/profile", "profile"),
        ("service/calls", "rpc"),
    ]


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json", "csv"])
def test_without_a_training_there_are_the_other_sessions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    write_run(tmp_path, [make_call(1)])
    assert main(["runs", str(tmp_path), "--format", form]) == 0
    assert "rpc" in capsys.readouterr().out


def test_all_sessions_of_calls_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, [make_call(1)])
    assert main(["report", str(tmp_path), "--all-sessions"]) == 2
    assert capsys.readouterr().err == (
        f"--all-sessions adds up where the time of trainings went, and '{tmp_path}' has no training; leave it"
        " out for the newest session, or give --session ID\n"
    )


def test_of_all_sessions_those_of_the_training_are_added_up_whatever_else_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "perf_records_20240129_103000.jsonl", steady(40))
    made = make_profile().write(tmp_path, make_profile_header("20240129_113000"))
    assert main(["report", str(tmp_path), "--all-sessions"]) == 0
    assert capsys.readouterr().out.startswith(f"1 session in {tmp_path}, as restarts of one experiment\n")
    made.write_bytes(made.read_bytes().replace(b'"profile"', b'"a newer one"', 1))
    assert main(["report", str(tmp_path), "--all-sessions"]) == 0
