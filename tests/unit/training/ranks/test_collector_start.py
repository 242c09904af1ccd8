"""The start of a node's collector."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import pytest

from flagscale_perf.spine import companion
from flagscale_perf.training.ranks.collector import CollectorTask, start_collector

TASK = CollectorTask("key", "9", 8, "logs/.ranks_key")


@pytest.fixture
def collectors() -> Iterator[Callable[[], None]]:
    """Waits for the threads that have started one."""

    def wait() -> None:
        for thread in threading.enumerate():
            if thread.name == "flagscale_perf collector":
                thread.join(60)
                assert not thread.is_alive()

    yield wait
    wait()


def test_a_collector_is_started_beside_the_thread_that_asks(
    monkeypatch: pytest.MonkeyPatch, collectors: Callable[[], None]
) -> None:
    started: list[tuple[Any, ...]] = []

    class Started:
        def __init__(self, *words: str, **streams: Any) -> None:
            started.append((*words, threading.current_thread() is threading.main_thread()))

        def wait(self) -> int:
            return 0

    monkeypatch.setattr(companion, "start", Started)
    start_collector(TASK)
    collectors()
    ((module, task, on_training),) = started
    assert not on_training, "a process on a slow disk may take its time to start"
    assert module == "flagscale_perf.training.ranks.collector"
    words = json.loads(task)
    assert words.pop("since_ns") > 0
    assert words == asdict(TASK) | {"parent_pid": os.getpid()}


@pytest.mark.parametrize(
    ("codes", "lines"),
    [([-9, -9, 0], ""), ([-9, -9, -9, 0], "no collector process: OSError: 3 of them have died; ")],
)
def test_a_killed_collector_has_a_successor(
    codes: list[int],
    lines: str,
    monkeypatch: pytest.MonkeyPatch,
    collectors: Callable[[], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Started:
        def __init__(self, *words: str, **streams: Any) -> None:
            self._code = codes.pop(0)

        def wait(self) -> int:
            return self._code

    monkeypatch.setattr(companion, "start", Started)
    start_collector(TASK)
    collectors()
    said = capsys.readouterr().err
    assert (lines in said, bool(said)) == (True, bool(lines))


@pytest.mark.parametrize("error", [OSError("no process"), subprocess.SubprocessError("no process")])
def test_without_a_collector_one_line_is_said_and_the_host_goes_on(
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    collectors: Callable[[], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*words: str, **streams: Any) -> None:
        raise error

    monkeypatch.setattr(companion, "start", refuse)
    start_collector(TASK)
    collectors()
    said = (
        f"flagscale_perf: no collector process: {type(error).__name__}: no process; nothing is recorded "
        "of this node's ranks\n"
    )
    assert capsys.readouterr() == ("", said)


def test_without_a_thread_there_is_no_collector_either(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    start_collector(TASK)
    assert "no collector process: RuntimeError: can't start new thread; " in capsys.readouterr().err
