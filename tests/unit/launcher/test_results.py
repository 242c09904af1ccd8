import os
import sys

import pytest

from flagscale_perf.launcher.config import read_job
from flagscale_perf.launcher.plan import make_plan
from flagscale_perf.launcher.results import reason, results, sessions

OLD, NEW = "20240129_103000", "20240129_103000_2"


@pytest.fixture
def plan(config):
    config["train"]["system"]["tensorboard_dir"] = "tensorboard"
    plan = make_plan(read_job(config), "/", {})
    plan.paths.make()
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


def test_what_lies_where(plan) -> None:
    touch(
        plan,
        f"perf_records_{OLD}.jsonl",
        f"perf_records_{NEW}.jsonl",
        f"perf_metrics_{NEW}.log",
        "perf_realtime.log",
    )
    directory = plan.perf.perf_log_dir
    open(plan.paths.output, "w").close()
    lines = results(plan, {OLD}, with_log=True)
    log = f"{directory}/perf_metrics_{NEW}.log"
    assert lines[:15] == [
        "",
        f"last lines of {log}:",
        "Timestamp            Step",
        *(f"line {number}" for number in range(8, 20)),
    ]
    assert lines[lines.index("files:") :] == [
        "files:",
        f"  output      {plan.paths.output}",
        f"  perf logs   {directory}",
        f"  records     {directory}/perf_records_{NEW}.jsonl",
        f"  metrics     {log}",
        f"  realtime    {directory}/perf_realtime.log",
    ]
    assert "last lines" not in "".join(results(plan, {OLD}, with_log=False))


def test_job_that_left_nothing(plan) -> None:
    os.rmdir(plan.perf.perf_log_dir)
    assert results(plan, set(), with_log=True) == ["", "files:"]


def test_report_that_fails_is_said(plan, monkeypatch) -> None:
    touch(plan, f"perf_records_{NEW}.jsonl")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert (
        results(plan, set(), with_log=False)[1]
        == "no summary: `flagscale-perf report` ended with 1: no message"
    )


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
