"""The processes beside one: drained into folds, their end told from their death."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from flagscale_perf.spine.peers.node import KILLED, Gone, News, Node
from flagscale_perf.spine.peers.search import Peer
from flagscale_perf.spine.processes import process_stat
from flagscale_perf.spine.ring import Ring
from tests.fakes import make_event
from tests.toy_peers import TOYS, Toy, ToySum, make_toy, number


class FakeSearch:
    """Finds what the test has laid down."""

    def __init__(self) -> None:
        self.new: list[Peer[Toy]] = []
        self.is_over, self.missing = False, 0

    def look(self, now_ns: int) -> list[Peer[Toy]]:
        found, self.new = self.new, []
        return found


class Beside:
    """A node of the processes "1", "2", ... with rings of this process."""

    def __init__(self) -> None:
        self.search = FakeSearch()
        self.watched: list[int] = []
        self.rings: list[Ring] = []
        self.node: Node[Toy, ToySum] = Node(TOYS, self.search, self.watched.append)  # type: ignore[arg-type]

    def join(self, alive: bool = True) -> Ring:
        ring = Ring.create(64)
        assert ring.fd is not None
        self.rings.append(ring)
        name, stat = str(len(self.rings)), process_stat(os.getpid())
        assert stat is not None
        pid = os.getpid() if alive else 2**22 + 1  # more than there can be
        other_end = Ring.attach(os.dup(ring.fd))
        self.search.new.append(Peer(name, pid, stat.start_ticks, make_toy(name), other_end))
        return ring


@pytest.fixture
def beside() -> Iterator[Beside]:
    made = Beside()
    yield made
    made.node.close()
    for fd in made.watched:
        os.close(fd)
    for ring in made.rings:
        ring.release()


def put(ring: Ring, *values: int) -> None:
    for value in values:
        ring.put(number(value))


def test_who_is_found_is_reported_and_its_records_folded(beside: Beside) -> None:
    ring = beside.join()
    put(ring, 1, 2, 3)
    assert beside.node.cycle(counts_dead=True) == News([make_toy("1")], [ToySum("1", 3)])
    assert beside.node.cycle(counts_dead=True) == News()
    assert len(beside.watched) == 1
    put(ring, 4, 5)
    assert beside.node.close().items == [ToySum("1", 7), ToySum("1", 5)]


def test_an_announced_end_gives_the_rest_and_is_no_death(beside: Beside) -> None:
    ring = beside.join(alive=False)
    put(ring, 1)
    ring.close("completed", 1)
    news = beside.node.cycle(counts_dead=True)
    assert (news.items, news.gone, beside.node.is_over) == ([ToySum("1", 1)], [], True)
    assert beside.node.close() == News()


def test_who_ends_while_it_is_looked_at_has_not_died(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = beside.join()
    put(ring, 1)

    def goes(peer: Any) -> bool:
        ring.close("completed", 1)
        return False

    monkeypatch.setattr(Peer, "is_running", goes)
    news = beside.node.cycle(counts_dead=True)
    assert (news.gone, news.items, beside.node.is_over) == ([], [ToySum("1", 1)], True)


def test_a_death_is_reported_once_with_how_far_it_got(beside: Beside) -> None:
    put(beside.join(alive=False), 1, 2, 3)
    beside.join()
    news = beside.node.cycle(counts_dead=True)
    assert (news.gone, news.items) == ([Gone("1", 3, KILLED)], [ToySum("1", 3), ToySum("1", 3)])
    assert not beside.node.is_over
    assert beside.node.cycle(counts_dead=True) == News()


def test_who_is_gone_when_the_job_ends_has_not_died(beside: Beside) -> None:
    put(beside.join(alive=False), 1)
    assert beside.node.cycle(counts_dead=False).gone == []
    last = beside.node.close()
    assert (last.gone, last.items) == ([], [ToySum("1", 1)])


def test_notes_of_the_fold_are_passed_on(beside: Beside) -> None:
    beside.join().put(make_event("note", text="phases switched off"))
    assert beside.node.cycle(counts_dead=True).notes == [("1", "phases switched off")]


def test_lost_records_are_reported_once(beside: Beside) -> None:
    ring = beside.join()
    put(ring, *range(70))
    lost = "6 of its records are lost, and perhaps more later: more came than was read"
    assert beside.node.cycle(counts_dead=True).notes == [("1", lost)]
    put(ring, *range(70))
    assert beside.node.cycle(counts_dead=True).notes == []


def test_the_missing_are_known_when_the_search_is_over(beside: Beside) -> None:
    beside.search.missing = 2
    assert beside.node.missing == 0
    beside.search.is_over = True
    assert beside.node.missing == 2


def test_a_request_reaches_those_here_and_those_found_later(beside: Beside) -> None:
    beside.join()
    beside.node.cycle(counts_dead=True)
    beside.node.request("half")
    beside.join()
    assert beside.node.cycle(counts_dead=True).notes == [("1", "asked for half"), ("2", "asked for half")]
