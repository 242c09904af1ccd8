"""The training side of a rank other than 0, its ring read as another process would."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.spine import companion
from flagscale_perf.spine.ring import Ring
from flagscale_perf.training.ranks import teller as teller_module
from flagscale_perf.training.ranks.neighbours import Neighbour, Search
from flagscale_perf.training.ranks.place import Place
from flagscale_perf.training.ranks.teller import Teller
from tests.fakes import make_identity, make_marks, make_step

PLACE = Place(9, 16, 1, 8, "0123456789abcdef")


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    yield
    while teller_module._ended:
        teller_module._ended.pop().release()


def start(place: Place = PLACE) -> Teller:
    return Teller.start(place, make_identity(place.rank, pid=os.getpid()), "logs")


def found(since_ns: int = 0) -> list[Neighbour]:
    return Search(PLACE.key, os.getpid(), 1, since_ns).look(1)


def test_what_it_stores_is_found_by_others() -> None:
    teller = start()
    (neighbour,) = found()
    teller.step(make_marks(1))
    teller.step(make_step(1))
    teller.event("failure", 1, "monitor switched off")
    told = neighbour.drain()
    assert (neighbour.identity.rank, [step for step, _ in told.steps], told.notes) == (
        9,
        [make_step(1)],
        ["monitor switched off"],
    )
    assert not neighbour.has_ended
    teller.end("completed")
    teller.step(make_step(2))
    teller.event("note", 1, "too late")
    teller.end("again")
    assert (neighbour.has_ended, neighbour.drain()) == (True, ([], []))
    neighbour.release()


def test_it_can_be_found_after_its_end_until_it_trains_again() -> None:
    first = start()
    first.step(make_step(1))
    first.end("completed")
    (old,) = found()
    assert [step.iteration for step, _ in old.drain().steps] == [1]
    second = start()
    old.release()
    (new,) = found()
    assert not new.has_ended
    new.release()
    second.end("completed")


def test_a_full_ring_harms_nobody() -> None:
    teller = start()
    for iteration in range(teller_module.SLOTS + 10):
        teller.step(make_step(iteration))
    (neighbour,) = found()
    told = neighbour.drain()
    assert len(told.steps) == teller_module.SLOTS
    assert told.notes == ["10 of its records are lost, and perhaps more later: more came than was read"]
    assert neighbour.drain().notes == [], "said once"
    neighbour.release()
    teller.end("completed")


FIRST = PLACE._replace(rank=8, local_rank=0)


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


def test_the_first_rank_of_a_node_starts_its_collector(
    monkeypatch: pytest.MonkeyPatch, collectors: Callable[[], None]
) -> None:
    started: list[tuple[Any, ...]] = []

    class Started:
        def __init__(self, *words: str, **streams: Any) -> None:
            started.append((*words, threading.current_thread() is threading.main_thread()))

        def wait(self) -> int:
            return 0

    monkeypatch.setattr(companion, "start", Started)
    start().end("completed")
    collectors()
    assert started == []
    start(FIRST).end("completed")
    collectors()
    ((module, task, on_training),) = started
    assert not on_training, "a process on a slow disk may take its time to start"
    assert module == "flagscale_perf.training.ranks.collect"
    assert f'"parent_pid":{os.getpid()}' in task
    assert f'"directory":"{Path.cwd()}/logs"' in task


@pytest.mark.parametrize("error", [OSError("no process"), subprocess.SubprocessError("no process")])
def test_without_a_collector_one_line_is_said_and_the_training_goes_on(
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    collectors: Callable[[], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*words: str, **streams: Any) -> None:
        raise error

    monkeypatch.setattr(companion, "start", refuse)
    start(FIRST).end("completed")
    collectors()
    said = f"flagscale_perf: no collector process: {type(error).__name__}: no process; nothing is recorded of this node's ranks\n"
    assert capsys.readouterr() == ("", said)


def test_without_a_thread_there_is_no_collector_either(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    start(FIRST).end("completed")
    assert "no collector process: RuntimeError: can't start new thread; " in capsys.readouterr().err


def test_a_forked_child_tells_nothing() -> None:
    teller = start()
    (neighbour,) = found()
    child = os.fork()
    if child == 0:
        teller.step(make_step(99))
        teller.end("killed")
        os._exit(0)
    os.waitpid(child, 0)
    assert (neighbour.has_ended, neighbour.drain().steps) == (False, [])
    neighbour.release()
    teller.end("completed")


def test_without_shared_memory_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(slots: int, name: str) -> Ring:
        raise OSError("no memory")

    monkeypatch.setattr(Ring, "create", refuse)
    with pytest.raises(OSError, match="no memory"):
        start()
