"""The training side of the recorder: it returns at once, never raises, and ends when told."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.perf_logger import PerfLogger
from flagscale_perf.spine import companion
from flagscale_perf.spine.records import EventRecord
from flagscale_perf.spine.ring import Ring
from flagscale_perf.store.decoder import decode
from flagscale_perf.training.records import StepRecord
from flagscale_perf.writer import journal, losses, supervisor
from tests.fakes import SECOND, make_facts, make_identity, make_step
from tests.members import wait_for

LONG_S = 60.0


@pytest.fixture
def said() -> list[str]:
    return []


def start(directory: Path, said: list[str], **options) -> PerfLogger:
    config = PerfConfig(enable_perf_monitor=True, perf_log_dir=str(directory), **options)
    return PerfLogger.start(config, make_facts(), said.append)


def steps_in(directory: Path) -> list[int]:
    (path,) = directory.glob("perf_records_*.jsonl")
    records = [decode(line) for line in path.read_bytes().splitlines()]
    return [record.iteration for record in records if isinstance(record, StepRecord)]


def summary_of(path: str | None) -> dict:
    assert path is not None
    return json.loads(Path(path).read_text())


def test_a_session_from_start_to_end(tmp_path: Path, said: list[str]) -> None:
    logger = start(tmp_path, said)
    for iteration in range(1, 26):
        logger.step(make_step(iteration))
    logger.event("resume", 0, "after iteration 0")
    summary = summary_of(logger.close("completed", LONG_S))
    assert (steps_in(tmp_path), said) == (list(range(1, 26)), [])
    assert (
        summary["session_info"]["end_reason"],
        summary["totals"]["train_steps"],
        summary["failure_count"],
    ) == ("completed", 25, 0)
    assert summary["run_facts"]["world_size"] == 8
    assert summary["config"]["perf_log_interval"] == 10


def test_closing_again_returns_the_same_and_what_comes_later_is_ignored(
    tmp_path: Path, said: list[str]
) -> None:
    logger = start(tmp_path, said)
    first = logger.close("completed", LONG_S)
    logger.step(make_step(1))
    logger.event("note", 1, "late")
    assert logger.close("exit 1", LONG_S) == first
    assert (steps_in(tmp_path), summary_of(first)["session_info"]["end_reason"]) == ([], "completed")


def test_the_console_gets_every_line_before_close_returns(tmp_path: Path, said: list[str]) -> None:
    logger = start(tmp_path, said, perf_console_output=True)
    for iteration in range(1, 26):
        logger.step(make_step(iteration))
    logger.close("completed", LONG_S)
    assert said == next(tmp_path.glob("perf_metrics_*.log")).read_text().splitlines()
    assert len(said) == 6 + 3 + 1


def test_a_console_that_raises_stops_only_itself(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def broken(line: str) -> None:
        raise ValueError("closed")

    config = PerfConfig(enable_perf_monitor=True, perf_log_dir=str(tmp_path), perf_console_output=True)
    logger = PerfLogger.start(config, make_facts(), broken)
    logger.step(make_step(1))
    assert logger.close("completed", LONG_S) is not None
    assert steps_in(tmp_path) == [1]
    assert capfd.readouterr().err == "flagscale_perf: console: ValueError: closed; no more lines on it\n"


def test_a_relative_directory_is_the_trainers(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    logger = start(Path("logs/perf"), said)
    monkeypatch.undo()
    assert Path(logger.close("completed", LONG_S) or "").parent == tmp_path / "logs" / "perf"


def test_facts_json_does_not_know_are_recorded_as_text(tmp_path: Path, said: list[str]) -> None:
    config = PerfConfig(enable_perf_monitor=True, perf_log_dir=str(tmp_path))
    facts = make_facts(model={"dtype": complex(0, 1), "eps": float("nan")})
    logger = PerfLogger.start(config, facts, said.append)
    assert summary_of(logger.close("completed", LONG_S))["run_facts"]["model"] == {"dtype": "1j", "eps": None}


def test_where_no_process_can_be_started_a_thread_does_the_work(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*args, **kwargs):
        raise PermissionError(1, "no processes here")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    logger = start(tmp_path, said, perf_console_output=True)
    for iteration in range(1, 26):
        logger.step(make_step(iteration))
    summary = summary_of(logger.close("completed", LONG_S))
    assert steps_in(tmp_path) == list(range(1, 26))
    assert summary["failures"][0]["text"] == "no writer process: PermissionError: [Errno 1] no processes here"
    assert said == next(tmp_path.glob("perf_metrics_*.log")).read_text().splitlines()
    assert (
        capfd.readouterr().err
        == "flagscale_perf: no writer process: PermissionError: [Errno 1] no processes here\n"
    )


def test_a_thread_of_the_training_never_reads_the_device(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor.Supervisor, "_run_process", lambda self: False)
    config = PerfConfig(enable_perf_monitor=True, perf_log_dir=str(tmp_path))
    logger = PerfLogger.start(config, make_facts(device_uuid="1"), said.append)
    path = logger.close("completed", LONG_S)
    (run_file,) = tmp_path.glob("perf_records_*.jsonl")
    events = [
        record
        for record in map(decode, run_file.read_bytes().splitlines())
        if isinstance(record, EventRecord)
    ]
    assert [event.text for event in events] == [
        "no hardware counters: they are read in a writer process only"
    ]
    assert set(summary_of(path)["hardware"].values()) == {None}


def test_a_thread_of_the_training_hears_no_other_ranks_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor.Supervisor, "_run_process", lambda self: False)
    config = PerfConfig(enable_perf_monitor=True, perf_log_dir=str(tmp_path))
    PerfLogger.start(config, make_facts(world_size=2), print, make_identity(0)).close("completed", LONG_S)
    (run_file,) = tmp_path.glob("perf_records_*.jsonl")
    events = [
        record
        for record in map(decode, run_file.read_bytes().splitlines())
        if isinstance(record, EventRecord)
    ]
    note = "nothing is recorded of other ranks: they are read in a writer process only"
    assert [(event.name, event.text) for event in events] == [("rank", note)]


def test_without_shared_memory_a_thread_does_the_work(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args):
        raise OSError("no memory to share")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    logger = start(tmp_path, said)
    logger.step(make_step(1))
    summary = summary_of(logger.close("completed", LONG_S))
    assert (steps_in(tmp_path), summary["failures"][0]["text"]) == (
        [1],
        "no shared memory for a writer process",
    )


@pytest.mark.parametrize(
    "broken",
    ["flagscale_perf.writer.recorder.Ring.create", "flagscale_perf.writer.supervisor.Supervisor.start"],
)
def test_where_nothing_can_be_started_training_goes_on(
    tmp_path: Path,
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    broken: str,
) -> None:
    def refuse(*args):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(broken, refuse)
    at_exit: list[Callable[[], str]] = []
    monkeypatch.setattr(losses, "_to_ask", at_exit)
    logger = start(tmp_path, said)
    logger.step(make_step(1))
    logger.event("note", 1, "x")
    assert logger.close("completed") is None
    assert (
        capfd.readouterr().err
        == "flagscale_perf: nothing is recorded: RuntimeError: can't start new thread\n"
    )
    assert [why() for why in at_exit] == ["nothing was recorded: RuntimeError: can't start new thread"]
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_cannot_start_is_replaced_by_a_thread_and_its_last_words_are_kept(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(companion, "_PACKAGE_ROOT", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PYTHONPATH", "")
    (tmp_path / "nowhere" / "flagscale_perf").mkdir(parents=True)
    (tmp_path / "nowhere" / "flagscale_perf" / "__init__.py").write_text(
        "raise ImportError('broken installation')"
    )
    logger = start(tmp_path / "logs", said)
    logger.step(make_step(1))
    summary = summary_of(logger.close("completed", LONG_S))
    assert steps_in(tmp_path / "logs") == [1]
    texts = [re.sub(r"process \d+", "process N", failure["text"]) for failure in summary["failures"]]
    assert (
        texts
        == ["writer process N ended with code 1: ImportError: broken installation"] * supervisor.MAX_WRITERS
    )


class Stuck:
    """A drain that began and has not got on since; "test" ends that."""

    def __init__(self, ring: Ring, *args) -> None:
        self.ring, self.goes_on = ring, threading.Event()
        STUCK.append(self)

    def run(self, *args) -> None:
        self.ring.beat()
        self.goes_on.wait()
        self.ring.summary = "late"


STUCK: list[Stuck] = []


@pytest.mark.parametrize(
    ("waited_ns", "why"),
    [
        (itertools.repeat(7), "the disk of {} does not answer"),
        (itertools.count(0, 3600 * SECOND), "others take its CPU"),
    ],
    ids=["disk", "no CPU"],
)
def test_close_gives_up_when_its_time_is_over_and_says_what_the_writer_waits_for(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    waited_ns: Iterator[int],
    why: str,
) -> None:
    monkeypatch.setattr(supervisor.Supervisor, "_run_process", lambda self: False)
    monkeypatch.setattr(supervisor, "Drain", Stuck)
    monkeypatch.setattr(journal, "cpu_wait_ns", lambda task: next(waited_ns))
    logger = start(tmp_path, [])
    logger.step(make_step(1))
    wait_for(lambda: bool(STUCK and STUCK[-1].ring.beats))
    assert logger.close("completed", timeout_s=0.05) is None
    STUCK.pop().goes_on.set()
    said = capfd.readouterr().err
    assert said.startswith(f"flagscale_perf: the writer is blocked: {why.format(tmp_path)}; records that ")


def test_a_forked_child_has_nothing_to_do_with_it(tmp_path: Path, said: list[str]) -> None:
    logger = start(tmp_path, said)
    logger.step(make_step(1))
    child = os.fork()
    if child == 0:
        logger.step(make_step(99))
        logger.event("failure", 99, "from the child")
        os._exit(0 if logger.close("killed") is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    logger.step(make_step(2))
    summary = summary_of(logger.close("completed", LONG_S))
    assert (steps_in(tmp_path), summary["failure_count"], summary["session_info"]["end_reason"]) == (
        [1, 2],
        0,
        "completed",
    )


def test_the_module_and_all_it_imports_know_no_torch(repo: Path) -> None:
    code = (
        "import sys, flagscale_perf.perf_logger; print([m for m in ('torch', 'numpy', 'tensorboard', "
        "'megatron') if m in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], cwd=repo, capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


def test_the_trainer_does_not_import_what_only_writes() -> None:
    code = "import sys, flagscale_perf.hooks; print([one for one in sys.modules if 'pipeline' in one])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
