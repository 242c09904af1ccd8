"""The processes beside one: drained into folds, their end told from their death."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator

import pytest

from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.peers import node as node_module
from flagscale_perf.spine.peers.handover import UNSAID, Door, Source, Visitor
from flagscale_perf.spine.peers.node import Gone, News, Node
from flagscale_perf.spine.ring import Ring
from tests.fakes import make_event
from tests.toy_peers import TOYS, Toy, ToySum, make_toy, number

SINCE_NS = 1000


class FakeDoor:
    """Lets in whom the test sends."""

    def __init__(self) -> None:
        self.new: list[Visitor] = []

    def visitors(self) -> list[Visitor]:
        come, self.new = self.new, []
        return come

    def close(self) -> None:
        assert not self.new


class Beside:
    """A node of the processes "1", "2", ... with rings of this process."""

    def __init__(self, leader: int | None = None, expected: int = 3) -> None:
        self.door = FakeDoor()
        self.watched: list[int] = []
        self.rings: list[Ring] = []
        self.ends: list[socket.socket] = []
        self.node: Node[Toy, ToySum] = Node(TOYS, "a key", expected, SINCE_NS, self.watched.append)
        if leader is not None:
            self.node.be_led(leader)

    def join(self, alive: bool = True, owner: object = None, pid: int = 0) -> Ring:
        ring = Ring.create(64)
        assert ring.fd is not None
        self.rings.append(ring)
        ring.producer = dump(make_toy(str(len(self.rings))) if owner is None else owner)
        pid = pid or (os.getpid() if alive else 2**22 + 1)  # more than there can be
        here, there = socket.socketpair()
        here.setblocking(False)
        self.ends.append(here)
        self.door.new.append(Visitor(pid, os.dup(ring.fd), there))
        return ring

    def release(self) -> None:
        for end in self.ends:
            end.close()
        for fd in self.watched:
            os.close(fd)
        for ring in self.rings:
            ring.release()

    def words(self) -> list[bytes | None]:
        """What each process has been sent; b"" for a connection that has just ended, None for nothing."""
        return [_word(end) for end in self.ends]


def _word(end: socket.socket) -> bytes | None:
    try:
        return end.recv(9)
    except BlockingIOError:
        return None


@pytest.fixture(autouse=True)
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "GRACE_NS", 0)


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> Iterator[Beside]:
    made = Beside()
    monkeypatch.setattr(Door, "open", lambda key: made.door)
    yield made
    made.node.close()
    made.release()


def put(ring: Ring, *values: int) -> None:
    for value in values:
        ring.put(number(value))


def test_who_has_come_is_reported_and_its_records_folded(beside: Beside) -> None:
    ring = beside.join()
    put(ring, 1, 2, 3)
    assert beside.node.cycle() == News([make_toy("1")], [ToySum("1", 3)])
    assert beside.node.cycle() == News()
    assert len(beside.watched) == 1
    put(ring, 4, 5)
    assert beside.node.close().items == [ToySum("1", 7), ToySum("1", 5)]


def test_an_announced_end_gives_the_rest_and_is_no_death(beside: Beside) -> None:
    ring = beside.join(alive=False)
    put(ring, 1)
    ring.close("completed", SINCE_NS)
    news = beside.node.cycle()
    assert (news.items, news.gone, beside.node.is_over) == ([ToySum("1", 1)], [], True)
    assert beside.node.close() == News()


def test_who_ends_while_it_is_looked_at_has_not_died(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = beside.join()
    put(ring, 1)

    def goes(source: Source) -> bool:
        ring.close("completed", SINCE_NS)
        return False

    monkeypatch.setattr(Source, "_is_running", goes)
    news = beside.node.cycle()
    assert (news.gone, news.items, beside.node.is_over) == ([], [ToySum("1", 1)], True)


def test_a_death_is_reported_once_with_how_far_it_got(beside: Beside) -> None:
    put(beside.join(alive=False), 1, 2, 3)
    beside.join()
    news = beside.node.cycle()
    assert (news.gone, news.items) == ([Gone("1", 3, UNSAID)], [ToySum("1", 3), ToySum("1", 3)])
    assert not beside.node.is_over
    assert beside.node.cycle() == News()


def test_who_is_gone_when_nobody_leads_and_the_job_ends_has_not_died(beside: Beside) -> None:
    put(beside.join(alive=False), 1)
    last = beside.node.close()
    assert (last.gone, last.items, beside.words()) == ([], [ToySum("1", 1)], [b"\n"])


def process() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"])


@pytest.mark.parametrize("is_first", [True, False])
def test_who_ends_before_the_leader_has_died_however_late_it_is_looked_at(
    is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with process() as leader, process() as member:
        beside = Beside(leader.pid)
        monkeypatch.setattr(Door, "open", lambda key: beside.door)
        put(beside.join(pid=member.pid), 1, 2)
        assert beside.node.cycle().gone == []
        for each in (member, leader) if is_first else (leader, member):
            each.kill()
            each.wait()
        assert beside.node.cycle().gone == [Gone("1", 2, UNSAID)] * is_first
        assert beside.node.close().gone == []
        beside.release()


def test_the_descriptor_of_one_that_ended_may_be_that_of_another() -> None:
    with process() as leader, process() as ended, process() as died, process() as later:
        led = node_module._Leader(leader.pid)
        of_ended, of_died = (os.pidfd_open(each.pid) for each in (ended, died))
        for fd in (of_ended, of_died):
            led.watch(fd)
        for each in (ended, died):
            each.kill()
            each.wait()
        assert led.outlived(of_died)
        of_later = os.pidfd_open(later.pid)
        os.dup2(of_later, of_ended)  # closed, as its end was announced, and its number given away
        led.watch(of_ended)
        for each in (leader, later):
            each.kill()
            each.wait()
        assert not led.outlived(of_ended)
        led.close()
        for fd in (of_ended, of_died, of_later):
            os.close(fd)


def test_at_the_end_one_that_is_being_taken_down_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "GRACE_NS", 60 * 10**9)
    with process() as member:
        beside = Beside(os.getpid(), expected=1)
        monkeypatch.setattr(Door, "open", lambda key: beside.door)
        put(beside.join(pid=member.pid), 1)
        beside.node.cycle()
        beside.ends[0].close()
        monkeypatch.setattr(node_module.time, "sleep", lambda seconds: (member.kill(), member.wait()))
        assert beside.node.close().gone == [Gone("1", 1, UNSAID)]
        beside.release()


def test_notes_of_the_fold_are_passed_on(beside: Beside) -> None:
    beside.join().put(make_event("note", text="phases switched off"))
    assert beside.node.cycle().notes == [("1", "phases switched off")]


def test_lost_records_are_reported_once(beside: Beside) -> None:
    ring = beside.join()
    put(ring, *range(70))
    lost = "6 of its records are lost, and perhaps more later: more came than was read"
    assert beside.node.cycle().notes == [("1", lost)]
    put(ring, *range(70))
    assert beside.node.cycle().notes == []


def test_who_has_not_come_in_a_minute_is_missing(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    beside.join()
    beside.node.cycle()
    assert beside.node.missing == 0
    monkeypatch.setattr(node_module, "SILENCE_NS", 0)
    assert beside.node.missing == 2


def test_a_job_that_ends_at_once_waits_a_moment_for_those_expected(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "GRACE_NS", 60 * 10**9)
    monkeypatch.setattr(node_module.time, "sleep", lambda seconds: put(beside.join(), len(beside.rings)))
    assert beside.node.close().items == [ToySum("1", 1), ToySum("2", 2), ToySum("3", 3)]


def test_while_another_has_the_door_they_wait(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = [None, OSError("no descriptor"), beside.door]

    def open_door(key: str) -> FakeDoor | None:
        found = opened.pop(0)
        if isinstance(found, OSError):
            raise found
        return found

    monkeypatch.setattr(Door, "open", open_door)
    beside.join()
    assert [len(beside.node.cycle().owners) for _ in range(4)] == [0, 0, 1, 0]


def test_a_ring_of_an_earlier_job_is_sent_away_and_one_of_the_next_may_come_again(beside: Beside) -> None:
    beside.join().close("completed", SINCE_NS - 1)
    beside.join(owner="no toy")
    beside.join(owner=make_toy("9"))
    beside.join(owner=make_toy("9"))
    assert beside.node.cycle().owners == [make_toy("9")]
    assert beside.words() == [b"\n", b"\n", None, b""]


def test_what_is_no_ring_is_left_out(beside: Beside) -> None:
    here, there = socket.socketpair()
    beside.ends.append(here)
    beside.door.new.append(Visitor(os.getpid(), os.memfd_create("no ring"), there))
    assert (beside.node.cycle(), beside.words()) == (News(), [b""])


def test_a_request_reaches_those_here_and_those_found_later(beside: Beside) -> None:
    beside.join()
    beside.node.cycle()
    beside.node.request("half")
    beside.join()
    assert beside.node.cycle().notes == [("1", "asked for half"), ("2", "asked for half")]
