"""Every way a training may end: what was put into the ring is in the files, with the true reason."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.spine.records import RunEnd
from flagscale_perf.store.run_file import RunFile
from flagscale_perf.training.analysis.fold import read_summary
from tests.processes.trainer import ended_summary, records_in, steps_in, text_of, trainer, wait_for


def has_ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    ("command", "code", "reason"),
    [("return", 0, "completed"), ("exit", 3, "exit 3"), ("raise", 1, "exception ValueError")],
)
def test_an_end_the_training_knows_of(tmp_path: Path, command: str, code: int, reason: str) -> None:
    with trainer(tmp_path) as training:
        training.tell("put", 25)
        returned, stdout, stderr = training.end(command)
    summary = ended_summary(tmp_path)
    assert (returned, summary["session_info"]["end_reason"], summary["totals"]["train_steps"]) == (
        code,
        reason,
        25,
    )
    assert stdout == f"{next(tmp_path.glob('perf_summary_*'))}\n"
    assert steps_in(tmp_path) == list(range(1, 26))
    assert "flagscale_perf:" not in stderr


def test_ctrl_c_reaches_the_training_and_not_the_writer(tmp_path: Path) -> None:
    with trainer(tmp_path) as training:
        training.tell("put", 5)
        writer = training.writer()
        training.send("wait")
        assert training.answer() == "waiting"
        os.killpg(training.process.pid, signal.SIGINT)
        training.process.communicate()
        wait_for("the writer's end", lambda: has_ended(writer))
    assert training.process.returncode == -signal.SIGINT
    assert ended_summary(tmp_path)["session_info"]["end_reason"] == "interrupted"
    assert steps_in(tmp_path) == [1, 2, 3, 4, 5]


def test_the_writer_does_not_react_to_signals_meant_for_the_job(tmp_path: Path) -> None:
    with trainer(tmp_path) as training:
        writer = training.writer()
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            writer.send_signal(number)
        training.tell("put", 3)
        training.end("return")
    summary = ended_summary(tmp_path)
    assert (summary["session_info"]["end_reason"], summary["failure_count"]) == ("completed", 0)


@pytest.mark.parametrize(
    ("number", "steps"),
    [*((signal.SIGKILL, steps) for steps in (0, 1, 25, 5000)), (signal.SIGTERM, 25)],
)
def test_a_killed_training_loses_no_step(tmp_path: Path, number: int, steps: int) -> None:
    with trainer(tmp_path) as training:
        writer = training.writer()
        training.tell("put", steps)
        assert training.kill(number) == -number
        wait_for("the writer's end", lambda: has_ended(writer))
    assert steps_in(tmp_path) == list(range(1, steps + 1))
    summary = ended_summary(tmp_path)
    assert (
        summary["session_info"]["end_reason"],
        summary["totals"]["train_steps"],
        summary["dropped_records"],
    ) == ("killed", steps, 0)
    assert isinstance(records_in(tmp_path)[-1], RunEnd)


@pytest.mark.parametrize("moment", [1, 150])
def test_killed_in_the_middle_of_a_step_the_file_ends_with_the_last_whole_one(
    tmp_path: Path, moment: int
) -> None:
    with trainer(tmp_path) as training:
        writer = training.writer()
        training.send("run", 0)
        while int(training.answer()) < moment:
            continue
        training.process.send_signal(signal.SIGKILL)
        rest, _ = training.process.communicate()
        wait_for("the writer's end", lambda: has_ended(writer))
    steps = steps_in(tmp_path)
    assert steps == list(range(1, len(steps) + 1))
    announced = [int(line) for line in rest.split("\n")[:-1]]
    assert len(steps) >= max(announced, default=moment)
    assert ended_summary(tmp_path)["totals"]["train_steps"] == len(steps)


def test_a_forked_child_that_outlives_the_training_hides_nothing(tmp_path: Path) -> None:
    with trainer(tmp_path) as training:
        writer = training.writer()
        training.tell("put", 10)
        child = psutil.Process(int(training.tell("fork")))
        assert training.answer() == "done fork"
        training.process.send_signal(signal.SIGKILL)
        training.process.wait()
        wait_for("the writer's end", lambda: has_ended(writer))
        assert not has_ended(child)
        child.kill()
    assert steps_in(tmp_path) == list(range(1, 11))
    assert ended_summary(tmp_path)["session_info"]["end_reason"] == "killed"


def test_everything_killed_the_report_rebuilds_what_the_writer_last_wrote(tmp_path: Path) -> None:
    with trainer(tmp_path) as training:
        writer = training.writer()
        training.tell("put", 25)
        wait_for(
            "all steps in the summary", lambda: '"train_steps": 25' in text_of(tmp_path, "perf_summary_*")
        )
        writer.suspend()  # so that nothing is written between the two kills
        training.process.send_signal(signal.SIGKILL)
        writer.kill()
        training.process.communicate()
        run_file = next(tmp_path.glob("perf_records_*"))
        # Not its process state: its first thread may be a zombie while another one still holds the file.
        wait_for("the writer's end", lambda: not RunFile(run_file).is_live())
    on_disk = json.loads(text_of(tmp_path, "perf_summary_*"))
    rebuilt = read_summary(open_session(run_file)).as_dict()
    assert rebuilt["session_info"].pop("end_reason") == "killed"
    assert on_disk["session_info"].pop("end_reason") == "running"
    assert rebuilt == on_disk


@pytest.mark.parametrize("end", ["return", "kill"])
def test_the_report_equals_the_summary_of_a_run_that_ended(tmp_path: Path, end: str) -> None:
    with trainer(tmp_path) as training:
        training.writer()
        training.tell("put", 5000)
        if end == "kill":
            training.kill()
        else:
            training.end("return")
    written = ended_summary(tmp_path)
    assert written["totals"]["train_steps"] == 5000
    assert read_summary(open_session(next(tmp_path.glob("perf_records_*")))).as_dict() == written
