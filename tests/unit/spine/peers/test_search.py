"""Rings of this very process, looked for as if it were another one."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.peers import search as search_module
from flagscale_perf.spine.peers.search import Peer, Search
from flagscale_perf.spine.ring import Ring
from tests.toy_peers import TOYS, Toy, make_toy, number

KEY = f"{os.getpid():016x}"  # no other test's that runs now
START_NS = 1000


@pytest.fixture
def rings() -> Iterator[list[Ring]]:
    made: list[Ring] = []
    yield made
    for ring in made:
        ring.release()


def make_ring(rings: list[Ring], name: str, key: str = KEY, owner: object = None) -> Ring:
    ring = Ring.create(8, f"flagscale_perf.{key}.{name}")
    ring.producer = dump([os.getpid(), make_toy(name)] if owner is None else owner)
    rings.append(ring)
    return ring


def search(expected: int | None = None) -> Search[Toy]:
    return Search(TOYS, KEY, os.getpid(), expected, START_NS)


def released(found: list[Peer[Toy]]) -> list[str]:
    """Their names; the mappings are given back."""
    for peer in found:
        peer.release()
    return sorted(peer.owner.name for peer in found)


def test_rings_of_the_job_are_found_and_no_others(rings: list[Ring]) -> None:
    make_ring(rings, "1")
    make_ring(rings, "2")
    make_ring(rings, "3", key="f" * 16)
    make_ring(rings, "4", owner=[1, make_toy("4")])  # as a forked child sees its parent's
    make_ring(rings, "6", owner=[os.getpid(), make_toy("7")])
    make_ring(rings, "8", owner=[os.getpid(), "no toy"])
    make_ring(rings, "9", owner="no owner")
    make_ring(rings, "a b")
    foreign = os.memfd_create(f"flagscale_perf.{KEY}.5")
    os.write(foreign, b"no ring at all, but as long as a header would be" * 1000)
    assert released(search().look(1)) == ["1", "2"]
    os.close(foreign)


def test_a_ring_without_an_owner_is_none(rings: list[Ring]) -> None:
    rings.append(Ring.create(8, f"flagscale_perf.{KEY}.1"))
    assert search().look(1) == []


def test_a_ring_that_was_closed_before_is_of_an_earlier_training(rings: list[Ring]) -> None:
    make_ring(rings, "1").close("completed", START_NS - 1)
    make_ring(rings, "2").close("completed", START_NS)
    assert released(search().look(1)) == ["2"]


def test_after_the_last_expected_one_nobody_is_looked_for(rings: list[Ring]) -> None:
    looking = search(expected=2)
    make_ring(rings, "1")
    first = looking.look(1)
    assert (len(first), looking.is_over, looking.missing) == (1, False, 1)
    make_ring(rings, "2")
    assert looking.look(2) == [], "not yet"
    second = looking.look(1 + NS_PER_S // 2)
    assert (len(second), looking.is_over, looking.missing) == (1, True, 0)
    assert released(first + second) == ["1", "2"]


def test_nobody_is_looked_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "PAUSES_S", (0, 0))
    looking = search(expected=3)
    for now_ns in range(3):
        assert not looking.is_over
        assert looking.look(now_ns) == []
    assert (looking.is_over, looking.missing) == (True, 3)


def test_records_are_taken_once_each(rings: list[Ring]) -> None:
    ring = make_ring(rings, "1")
    (peer,) = search().look(1)
    for value in (1, 2):
        ring.put(number(value))
    assert (peer.name, peer.pid, peer.owner) == ("1", os.getpid(), make_toy("1"))
    assert (peer.drain(), peer.drain(), ring.saved) == ([number(1), number(2)], [], 2)
    for value in range(20):
        ring.put(number(value))
    assert (len(peer.drain()), peer.dropped) == (8, 12)
    peer.release()


def test_an_end_that_was_announced(rings: list[Ring]) -> None:
    ring = make_ring(rings, "1")
    (peer,) = search().look(1)
    assert (peer.has_ended, peer.is_running()) == (False, True)
    ring.close("completed", START_NS)
    assert peer.has_ended
    peer.release()


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
    make_ring(rings, "1")
    (peer,) = looking.look(1 + NS_PER_S)
    with no_descriptors():
        assert peer.is_running()
    peer.release()
