"""Rings of this very process, looked for as if it were another one."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.records import EventRecord
from flagscale_perf.spine.ring import Ring
from flagscale_perf.training.ranks import neighbours
from flagscale_perf.training.ranks.identity import signed
from flagscale_perf.training.ranks.neighbours import Neighbour, Search, process_stat
from tests.fakes import make_identity, make_marks, make_phases, make_step

KEY = "0123456789abcdef"
START_NS = 1000


@pytest.fixture
def rings() -> Iterator[list[Ring]]:
    made: list[Ring] = []
    yield made
    for ring in made:
        ring.release()


def make_ring(rings: list[Ring], rank: int, key: str = KEY, pid: int | None = None) -> Ring:
    ring = Ring.create(8, f"flagscale_perf.{key}.{rank}")
    ring.producer = signed(make_identity(rank, pid=os.getpid() if pid is None else pid))
    rings.append(ring)
    return ring


def search(expected: int | None = None) -> Search:
    return Search(KEY, os.getpid(), expected, START_NS)


def released(found: list[Neighbour]) -> list[int]:
    """Their ranks; the mappings go."""
    for neighbour in found:
        neighbour.release()
    return sorted(neighbour.identity.rank for neighbour in found)


def test_rings_of_the_job_are_found_and_no_others(rings: list[Ring]) -> None:
    make_ring(rings, 1)
    make_ring(rings, 2)
    make_ring(rings, 3, key="f" * 16)
    make_ring(rings, 4, pid=1)  # as a forked child sees its parent's
    foreign = os.memfd_create(f"flagscale_perf.{KEY}.5")
    os.write(foreign, b"no ring at all, but as long as a header would be" * 1000)
    assert released(search().look(1)) == [1, 2]
    os.close(foreign)


def test_a_ring_without_an_owner_is_none(rings: list[Ring]) -> None:
    rings.append(Ring.create(8, f"flagscale_perf.{KEY}.1"))
    assert search().look(1) == []


def test_a_ring_that_was_closed_before_is_of_an_earlier_training(rings: list[Ring]) -> None:
    make_ring(rings, 1).close("completed", START_NS - 1)
    make_ring(rings, 2).close("completed", START_NS)
    assert released(search().look(1)) == [2]


def test_after_the_last_expected_one_nobody_is_looked_for(rings: list[Ring]) -> None:
    looking = search(expected=2)
    make_ring(rings, 1)
    first = looking.look(1)
    assert (len(first), looking.is_over, looking.missing) == (1, False, 1)
    make_ring(rings, 2)
    assert looking.look(2) == [], "not yet"
    second = looking.look(1 + NS_PER_S // 2)
    assert (len(second), looking.is_over, looking.missing) == (1, True, 0)
    assert released(first + second) == [1, 2]


def test_nobody_is_looked_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "PAUSES_S", (0, 0))
    looking = search(expected=3)
    for now_ns in range(3):
        assert not looking.is_over
        assert looking.look(now_ns) == []
    assert (looking.is_over, looking.missing) == (True, 3)


def test_steps_come_with_their_phases_each_once(rings: list[Ring]) -> None:
    ring = make_ring(rings, 1)
    (neighbour,) = search().look(1)
    for record in (
        make_marks(1),
        make_step(1),
        make_step(2),
        EventRecord("failure", 5, 2, "switched off"),
        make_marks(3),
    ):
        ring.put(record)
    told = neighbour.drain()
    assert [(step, phases and phases.record) for step, phases in told.steps] == [
        (make_step(1), make_phases(1)),
        (make_step(2), None),
    ]
    assert told.notes == ["switched off"]
    ring.put(make_step(3))
    ((step, phases),) = neighbour.drain().steps
    assert (step, phases and phases.record, neighbour.iteration) == (make_step(3), make_phases(3), 3)
    assert (neighbour.drain().steps, ring.saved) == ([], 6)
    neighbour.release()


def test_an_end_that_was_announced(rings: list[Ring]) -> None:
    ring = make_ring(rings, 1)
    (neighbour,) = search().look(1)
    assert (neighbour.has_ended, neighbour.is_running()) == (False, True)
    ring.close("completed", START_NS)
    assert neighbour.has_ended
    neighbour.release()


def test_the_state_of_a_process() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    stat, again = process_stat(child.pid), process_stat(child.pid)
    assert stat is not None
    assert (stat.parent, stat) == (os.getpid(), again)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process_stat(child.pid) is None, "a zombie"
    child.communicate()
    assert process_stat(child.pid) is None


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process can open nothing more."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_who_has_no_descriptors_left_takes_nobody_for_dead_and_looks_again_later(rings: list[Ring]) -> None:
    looking = search(expected=1)
    with no_descriptors():
        assert looking.look(1) == []
    make_ring(rings, 1)
    (neighbour,) = looking.look(1 + NS_PER_S)
    with no_descriptors():
        assert neighbour.is_running()
    neighbour.release()
