"""What is said of a job that has ended: the log's last rows, what was found, the page, and why it failed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flagscale_perf.launcher.config import read_job
from flagscale_perf.launcher.ended import log_rows, reason, sessions, summary
from flagscale_perf.launcher.plan import make_plan
from tests.golden import golden
from tests.synthetic import TROUBLED, write

OLD, NEW = "20240129_103000", "20240129_103000_2"


@pytest.fixture
def plan(config):
    config["train"]["system"]["tensorboard_dir"] = "tensorboard"
    plan = make_plan(read_job(config, "/"), {})
    plan.job.paths.make()
    os.makedirs(plan.perf.perf_log_dir)
    return plan


def touch(plan, *names) -> None:
    for name in names:
        with open(os.path.join(plan.perf.perf_log_dir, name), "w") as file:
            file.write("Timestamp            Step\n" + "".join(f"line {number}\n" for number in range(20)))


def test_sessions_are_those_with_a_run_file(plan) -> None:
    touch(
        plan,
        f"perf_records_{OLD}.jsonl",
        f"perf_records_{NEW}.jsonl",
        "perf_records_mine.jsonl",
        f"perf_metrics_{OLD}_3.log",
    )
    assert sessions(plan.perf.perf_log_dir) == {OLD, NEW}
    assert sessions("/nowhere") == set()


def test_the_log_s_rows_stand_under_their_heading_and_fit_the_screen(plan) -> None:
    log = golden("perf_metrics_events.log")
    Path(plan.perf.perf_log_dir, f"perf_metrics_{NEW}.log").write_text(log)
    lines = log_rows(plan.perf.perf_log_dir, NEW, 200)
    assert lines == [log.splitlines()[place] for place in (3, 6, 7, 8, 9, 10)]
    assert lines[0].startswith("Timestamp ") and lines[-1].endswith("end: completed after iteration 25")
    assert log_rows(plan.perf.perf_log_dir, NEW, 60) == [line[:60] for line in lines]
    assert log_rows(plan.perf.perf_log_dir, OLD, 60) == []


@pytest.fixture
def recorded(plan):
    """A plan whose session is the one of the golden files."""
    write(TROUBLED, Path(plan.perf.perf_log_dir))
    return plan


def test_the_last_lines_say_what_was_found_where_the_page_is_and_what_to_type(recorded) -> None:
    directory = recorded.perf.perf_log_dir
    *lines, found, page, following = summary(recorded, OLD)
    assert lines == golden("report_screen.txt").splitlines()[:-1]
    program = os.path.join(os.path.dirname(sys.executable), "flagscale-perf")
    assert (
        [found, page, following]
        == [
            golden("report_screen.txt").splitlines()[-1],
            f"page   {directory[1:]}/perf_report_{OLD}.html",  # the command was typed in /
            f"next   {program[1:]} report {directory[1:]} --session {OLD} --full  # all figures",
        ]
    )
    assert Path(directory, f"perf_report_{OLD}.html").read_text().startswith("<!DOCTYPE html>")


def test_a_page_that_cannot_be_written_is_said_beside_what_was_found(plan, monkeypatch) -> None:
    def report(command, **_):
        assert command[-4:-1] == ["--session", NEW, "--page"]
        return subprocess.CompletedProcess(
            command, 2, "Key figures\n\nfound  x\n", "a\n-o p: cannot be written\n"
        )

    monkeypatch.setattr(subprocess, "run", report)
    assert summary(plan, NEW) == [
        "Key figures",
        "",
        "found  x",
        "no page: `flagscale-perf report` ended with 2: -o p: cannot be written",
    ]


def test_report_that_fails_is_said(plan, monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert summary(plan, NEW)[0] == "no summary: `flagscale-perf report` ended with 1: no message"


def test_the_program_is_called_by_its_name_where_that_finds_it(recorded, monkeypatch) -> None:
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    assert summary(recorded, OLD)[-1].startswith("next   flagscale-perf report ")
    assert shutil.which("flagscale-perf") is not None


def test_reason_of_a_failure_ends_where_torchrun_speaks_of_itself(tmp_path) -> None:
    output = tmp_path / "output"
    before = [f"line {number}" for number in range(40)]
    output.write_text(
        "\n".join(
            [*before, "E api.py:1002] failed (exitcode: 1) local_rank: 0", "Traceback", "ChildFailedError"]
        )
    )
    assert reason(str(output)) == [*before[-29:], "E api.py:1002] failed (exitcode: 1) local_rank: 0"]
    output.write_text("only this")
    assert reason(str(output)) == ["only this"]


def test_reason_of_a_job_that_was_restarted_is_that_of_its_last_start(tmp_path) -> None:
    output = tmp_path / "output"
    end = "E api.py:1002] failed (exitcode: {}) local_rank: 0 (pid: {}) of binary: python"
    lines = [
        "ValueError: one",
        end.format(1, 7),
        "will restart",
        "ValueError: two",
        end.format(3, 8),
        "Traceback",
    ]
    output.write_text("\n".join(lines))
    assert reason(str(output)) == ["will restart", "ValueError: two", end.format(3, 8)]
