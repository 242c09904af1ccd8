"""The ranks beside one process: drained into blocks, their devices read, their end told from their death."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from flagscale_perf.spine.records import EventRecord
from flagscale_perf.spine.ring import Ring
from flagscale_perf.training.ranks import node as node_module
from flagscale_perf.training.ranks.blocks import BlockBuilder
from flagscale_perf.training.ranks.neighbours import Neighbour
from flagscale_perf.training.ranks.node import KILLED, Gone, News, Node
from tests.fakes import make_identity, make_reading, make_step


class FakeSearch:
    """Finds what the test has laid down."""

    def __init__(self) -> None:
        self.new: list[Neighbour] = []
        self.is_over, self.missing = False, 0

    def look(self, now_ns: int) -> list[Neighbour]:
        found, self.new = self.new, []
        return found


class Beside:
    """A node of ranks 1, 2, ... in rings of this process."""

    def __init__(self) -> None:
        self.search = FakeSearch()
        self.watched: list[int] = []
        self.rings: list[Ring] = []
        self.node = Node(self.search, self.watched.append)  # type: ignore[arg-type]

    def join(self, alive: bool = True, device_uuid: str | None = None) -> Ring:
        ring = Ring.create(64)
        assert ring.fd is not None
        other_end = Ring.attach(os.dup(ring.fd))
        self.rings.append(ring)
        pid = os.getpid() if alive else 2**22 + 1  # more than there can be
        identity = make_identity(len(self.rings), pid=pid, device_uuid=device_uuid)
        stat = node_module_stat()
        self.search.new.append(Neighbour(identity, other_end, stat))
        return ring


def node_module_stat() -> int:
    from flagscale_perf.training.ranks.neighbours import process_stat

    stat = process_stat(os.getpid())
    assert stat is not None
    return stat.start_ticks


@pytest.fixture
def beside() -> Iterator[Beside]:
    made = Beside()
    yield made
    made.node.close()
    for fd in made.watched:
        os.close(fd)
    for ring in made.rings:
        ring.release()


def put(ring: Ring, *iterations: int) -> None:
    for iteration in iterations:
        ring.put(make_step(iteration))


def blocks_of(rank: int, *iterations: int) -> list:
    builder = BlockBuilder(rank)
    made = [builder.add(make_step(iteration), None) for iteration in iterations]
    return [block for block in [*made, builder.close()] if block is not None]


def test_who_is_found_is_told_and_folded_into_blocks(beside: Beside) -> None:
    ring = beside.join()
    put(ring, 1, 2, 3, 4, 5)
    news = beside.node.cycle(counts_dead=True)
    assert news.identities == [make_identity(1, pid=os.getpid())]
    assert news.blocks == blocks_of(1, 1, 2, 3, 4)
    assert beside.node.cycle(counts_dead=True) == News()
    assert len(beside.watched) == 1
    put(ring, 6)
    assert beside.node.close().blocks == blocks_of(1, 5, 6)


def test_an_announced_end_gives_the_rest_and_is_no_death(beside: Beside) -> None:
    ring = beside.join(alive=False)
    put(ring, 1, 2)
    ring.close("completed", 1)
    news = beside.node.cycle(counts_dead=True)
    assert (news.blocks, news.gone, beside.node.is_over) == (blocks_of(1, 1, 2), [], True)
    assert beside.node.close() == News()


def test_who_ends_while_it_is_looked_at_has_not_died(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = beside.join()
    put(ring, 1)

    def goes(neighbour: Neighbour) -> bool:
        ring.close("completed", 1)
        return False

    monkeypatch.setattr(Neighbour, "is_running", goes)
    news = beside.node.cycle(counts_dead=True)
    assert (news.gone, news.blocks, beside.node.is_over) == ([], blocks_of(1, 1), True)


def test_a_death_is_told_once_with_the_last_iteration(beside: Beside) -> None:
    put(beside.join(alive=False), 1, 2)
    beside.join()
    news = beside.node.cycle(counts_dead=True)
    assert (news.gone, news.blocks) == ([Gone(1, 2, KILLED)], blocks_of(1, 1, 2))
    assert not beside.node.is_over
    assert beside.node.cycle(counts_dead=True) == News()


def test_who_is_gone_when_the_job_ends_has_not_died(beside: Beside) -> None:
    put(beside.join(alive=False), 1)
    assert beside.node.cycle(counts_dead=False).gone == []
    last = beside.node.close()
    assert (last.gone, last.blocks) == ([], blocks_of(1, 1))


def test_what_the_monitor_there_says_is_passed_on(beside: Beside) -> None:
    beside.join().put(EventRecord("shed", 1, 1, "phases switched off"))
    assert beside.node.cycle(counts_dead=True).notes == [(1, "phases switched off")]


class FakeSampler:
    """One hot reading, one remark; or a driver that has hung."""

    def __init__(self, device_uuid: str) -> None:
        self.device_uuid = device_uuid
        self.is_stopped = False
        started.append(self)

    def start(self) -> None:
        """Begins."""

    def stop(self) -> None:
        self.is_stopped = True

    def take(self) -> tuple[list, list[str]]:
        return (
            ([], ["no hardware counters: hung"])
            if self.device_uuid == "hung"
            else ([make_reading(1, throttle="power")], [])
        )


started: list[FakeSampler] = []


def test_devices_are_read_each_by_itself(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "Sampler", FakeSampler)
    rings = [beside.join(device_uuid="hung"), beside.join(device_uuid="good"), beside.join()]
    for ring in rings:
        put(ring, 1, 2, 3, 4)
    news = beside.node.cycle(counts_dead=True)
    assert [(block.rank, block.throttle) for block in news.blocks] == [(1, None), (2, "power"), (3, None)]
    assert news.notes == [(1, "no hardware counters: hung")]
    beside.node.close()
    assert [(sampler.device_uuid, sampler.is_stopped) for sampler in started] == [
        ("hung", True),
        ("good", True),
    ]
