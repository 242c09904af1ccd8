"""This process's ring in another's hands."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from flagscale_perf.spine.peers import own as own_module
from flagscale_perf.spine.peers.handover import Door, Source
from flagscale_perf.spine.peers.own import OwnRing
from flagscale_perf.spine.ring import Ring
from tests.toy_peers import make_toy, number

KEY = f"{os.getpid():016x}"  # no other test's that runs now


@pytest.fixture
def door() -> Iterator[Door]:
    opened = Door.open(KEY)
    assert opened is not None
    yield opened
    opened.close()
    settled()


def settled() -> None:
    """Waits for the threads that hand rings over."""
    for thread in threading.enumerate():
        if thread.name == "flagscale_perf ring":
            thread.join(60)
            assert not thread.is_alive()


def come(door: Door) -> Source:
    """The next one."""
    while True:
        for visitor in door.visitors():
            return Source(visitor)
        time.sleep(0.001)


def let_go(source: Source, word: bytes = b"\n") -> None:
    """Its ring is not drained any more; without a word, as if the one that drains it had been killed."""
    os.write(source.connection, word)
    os.close(source.connection)
    source.release()


def taken(source: Source) -> list[Any]:
    records = source.ring.take(99)
    source.ring.commit(len(records))
    return list(records)


def start() -> OwnRing:
    return OwnRing.begin(KEY, make_toy())


def test_what_it_stores_is_in_the_hands_of_who_drains(door: Door) -> None:
    own = start()
    source = come(door)
    own.put(number(1))
    own.event("failure", 1, "monitor switched off")
    first, second = taken(source)
    assert (source.pid, json.loads(source.ring.producer or ""), first, second.name, second.text) == (
        os.getpid(),
        ["b1", "here"],
        number(1),
        "failure",
        "monitor switched off",
    )
    assert source.why_over() is None
    own.end("completed")
    own.put(number(2))
    own.event("note", 1, "too late")
    own.end("again")
    assert (source.why_over(), taken(source)) == ("completed", [])
    let_go(source)


def test_it_begins_before_the_one_that_drains() -> None:
    own = start()
    own.put(number(1))
    own.end("completed")
    late = Door.open(KEY)
    assert late is not None
    source = come(late)
    assert (taken(source), source.why_over()) == ([number(1)], "completed")
    let_go(source)
    late.close()
    settled()


def test_the_next_one_that_drains_has_what_the_killed_one_left(door: Door) -> None:
    own = start()
    first = come(door)
    own.put(number(1))
    own.put(number(2))
    assert first.ring.take(1) == [number(1)]
    first.ring.commit(1)
    let_go(first, b"")
    second = come(door)
    assert taken(second) == [number(2)]
    own.end("completed")
    let_go(second)


def test_where_nobody_drains_the_thread_ends_soon_after_the_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_module, "LAST_TRIES", 2)
    own = start()
    own.end("completed")
    settled()


def test_a_forked_child_stores_nothing(door: Door) -> None:
    own = start()
    source = come(door)
    child = os.fork()
    if child == 0:
        own.put(number(99))
        own.end("killed")
        os._exit(0)
    os.waitpid(child, 0)
    assert (source.why_over(), taken(source)) == (None, [])
    own.end("completed")
    let_go(source)


def test_without_shared_memory_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(slots: int) -> Ring:
        raise OSError("no memory")

    monkeypatch.setattr(Ring, "create", refuse)
    with pytest.raises(OSError, match="no memory"):
        start()


class NobodyThere:
    """A visit that meets nobody, ever."""

    def __init__(self) -> None:
        self.ring = Ring.create(8)

    def meet(self) -> bool:
        return False


class Pauses(threading.Event):
    """Ends after so many pauses, which pass at once."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count, self.taken = count, list[float | None]()

    def wait(self, timeout: float | None = None) -> bool:
        self.taken.append(timeout)
        if len(self.taken) >= self.count:
            self.set()
        return True


def test_a_process_that_nobody_drains_wakes_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    has_ended, slept = Pauses(60), list[float]()
    monkeypatch.setattr(time, "sleep", slept.append)
    own_module._keep_given(NobodyThere(), has_ended)  # type: ignore[arg-type]
    pauses = [pause for pause in has_ended.taken if pause is not None]
    assert pauses[0] == own_module.PAUSE_S and pauses[59] == own_module.MAX_PAUSE_S
    assert slept == [own_module.MAX_LAST_PAUSE_S] * own_module.LAST_TRIES, "its end is not held up"
