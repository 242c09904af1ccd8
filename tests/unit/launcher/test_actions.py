"""What is said when a job has ended: the last lines are what was found, or else what went wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flagscale_perf.launcher import actions
from flagscale_perf.launcher.config import read_job
from flagscale_perf.launcher.machine import Kills
from flagscale_perf.launcher.plan import Plan, make_plan

FAILURE = "E api.py:1002] failed (exitcode: 127) local_rank: 0 (pid: 7) of binary: python"
REASON = (
    "local rank 0 (pid 7) ended with exit status 127: bash did not find the command: see"
    " experiment.task.python and experiment.cmds.before_start"
)


@pytest.fixture
def plan(config, monkeypatch) -> Plan:
    plan = make_plan(read_job(config, "/"), {})
    plan.job.paths.make()
    Path(plan.job.paths.output).write_text(f"ValueError: one\n{FAILURE}\n")
    monkeypatch.setattr(actions, "summary", lambda _, session: [f"found  {session}", "next"])
    monkeypatch.setattr(actions, "log_rows", lambda *_: ["row"])
    return plan


def said(plan: Plan, code: int, new: list[str]) -> list[str]:
    return list(actions._end(plan, code, Kills(None, None), new))


def test_a_job_that_ended_well(plan) -> None:
    status = "the job ended with exit status 0"
    assert said(plan, 0, ["a", "b"]) == [status, "", "found  b", "next"]
    assert said(plan, 0, []) == [status]


def test_a_terminal_gets_the_rows_that_the_bar_has_hidden(plan, monkeypatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert said(plan, 0, ["a"])[:3] == ["", "row", "the job ended with exit status 0"]
    assert said(plan, 0, []) == ["the job ended with exit status 0"]


def test_a_job_that_failed(plan) -> None:
    status = "the job ended with exit status 1"
    output = ["", f"last lines of {plan.job.paths.output}:", "ValueError: one", FAILURE]
    assert said(plan, 1, ["a"]) == [*output, "", "found  a", "next", REASON, status]
    assert said(plan, 1, []) == [*output, REASON, status]


def test_a_job_that_was_stopped_has_not_failed(plan) -> None:
    Path(plan.job.paths.stop_file).touch()
    status = "the job was stopped by the user with exit status 1"
    assert said(plan, 1, ["a"]) == [status, "", "found  a", "next"]
