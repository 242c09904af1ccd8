"""This process's ring, read as another process would, and the start of its collector."""

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
from flagscale_perf.spine.peers import own as own_module
from flagscale_perf.spine.peers.member import Member
from flagscale_perf.spine.peers.own import CollectorTask, OwnRing, new_ring, read_owner, start_collector
from flagscale_perf.spine.peers.search import Peer, Search
from flagscale_perf.spine.ring import Ring
from tests.toy_peers import TOYS, Toy, make_toy, number

MEMBER = Member(f"{os.getpid():016x}", "worker-9")  # no other test's that runs now
TASK = CollectorTask(TOYS.path, MEMBER.key, MEMBER.name, 8, f"logs/.toys_{MEMBER.key}")


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    yield
    while own_module._ended:
        own_module._ended.pop().release()


def start() -> OwnRing:
    return OwnRing(new_ring(MEMBER, make_toy(MEMBER.name)))


def found(since_ns: int = 0) -> list[Peer[Toy]]:
    return Search(TOYS, MEMBER.key, os.getpid(), 1, since_ns).look(1)


def test_what_it_stores_is_found_by_others() -> None:
    own = start()
    (peer,) = found()
    own.put(number(1))
    own.event("failure", 1, "monitor switched off")
    first, second = peer.drain()
    assert (peer.owner, first, second.name, second.text) == (
        make_toy("worker-9"),
        number(1),
        "failure",
        "monitor switched off",
    )
    assert not peer.has_ended
    own.end("completed")
    own.put(number(2))
    own.event("note", 1, "too late")
    own.end("again")
    assert (peer.has_ended, peer.drain()) == (True, [])
    peer.release()


@pytest.mark.parametrize("text", ["", "{}", "7", "[1]", "[1, 2, 3]", "[" * 100_000])
def test_what_is_no_owner_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting value|unpack|owner of a ring"):
        read_owner(text)


def test_it_can_be_found_after_its_end_until_it_trains_again() -> None:
    first = start()
    first.put(number(1))
    first.end("completed")
    (old,) = found()
    assert old.drain() == [number(1)]
    second = start()
    old.release()
    (new,) = found()
    assert not new.has_ended
    new.release()
    second.end("completed")


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
    start_collector(TASK, TOYS.noun)
    collectors()
    ((module, task, on_training),) = started
    assert not on_training, "a process on a slow disk may take its time to start"
    assert module == "flagscale_perf.spine.peers.collector"
    words = json.loads(task)
    assert words.pop("since_ns") > 0
    assert words == asdict(TASK) | {"parent_pid": os.getpid()}


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
    start_collector(TASK, TOYS.noun)
    collectors()
    said = (
        f"flagscale_perf: no collector process: {type(error).__name__}: no process; nothing is recorded "
        "of this node's toys\n"
    )
    assert capsys.readouterr() == ("", said)


def test_without_a_thread_there_is_no_collector_either(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    start_collector(TASK, TOYS.noun)
    assert "no collector process: RuntimeError: can't start new thread; " in capsys.readouterr().err


def test_a_forked_child_stores_nothing() -> None:
    own = start()
    (peer,) = found()
    child = os.fork()
    if child == 0:
        own.put(number(99))
        own.end("killed")
        os._exit(0)
    os.waitpid(child, 0)
    assert (peer.has_ended, peer.drain()) == (False, [])
    peer.release()
    own.end("completed")


def test_without_shared_memory_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(slots: int, name: str) -> Ring:
        raise OSError("no memory")

    monkeypatch.setattr(Ring, "create", refuse)
    with pytest.raises(OSError, match="no memory"):
        start()
