"""Both sides of the drain's pulse, over a real ring; the clock is the test's."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from flagscale_perf.spine.processes import cpu_wait_ns
from flagscale_perf.spine.ring import Ring
from flagscale_perf.writer import journal
from flagscale_perf.writer.journal import STILL_S, Pulse
from flagscale_perf.writer.supervisor import Watcher
from tests.fakes import SECOND


@pytest.fixture
def ring() -> Iterator[Ring]:
    made = Ring.create(slots=64)
    yield made
    made.release()


def test_only_what_took_long_is_worth_a_word_and_twice_as_long_the_next(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000 * SECOND]
    monkeypatch.setattr(journal, "monotonic_ns", lambda: now[0])
    one = Pulse(ring)
    told = []
    for seconds in (0.5, STILL_S - 1, STILL_S + 2, STILL_S + 4, 4 * STILL_S):
        now[0] += int(seconds * SECOND)
        told.append(one.beat())
    assert told == [None, None, STILL_S + 2, None, 4 * STILL_S]
    assert ring.beats == 5


def test_long_work_that_goes_on_is_no_standstill(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr(journal, "monotonic_ns", lambda: now[0])
    one = Pulse(ring)
    for _ in range(3 * STILL_S):
        now[0] += SECOND
        one.go_on()
    assert one.beat() is None


def test_the_trainer_sees_a_writer_without_beats(ring: Ring) -> None:
    watcher = Watcher(ring, os.getpid())
    assert not any(
        watcher.stands_still() for _ in range(3 * STILL_S)
    )  # it has not begun: Python still imports
    ring.beat()
    looks = [watcher.stands_still() for _ in range(STILL_S + 2)]
    assert looks == [False] * STILL_S + [True] * 2
    ring.beat()
    assert not watcher.stands_still()


def test_the_next_writer_has_time_to_begin(ring: Ring) -> None:
    ring.beat()  # of the one before
    watcher = Watcher(ring, os.getpid())
    assert not any(watcher.stands_still() for _ in range(3 * STILL_S))


class Waits:
    """How long every thread has waited for a CPU, as the test has it; None: the system does not say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ns: int | None = 0
        monkeypatch.setattr(journal, "cpu_wait_ns", lambda task: self.ns)


@pytest.mark.parametrize(("waited_s", "starved"), [(7, True), (5, False), (None, False)])
def test_who_waited_for_a_cpu_does_not_blame_the_disk(
    ring: Ring, monkeypatch: pytest.MonkeyPatch, waited_s: int | None, starved: bool
) -> None:
    now, waits = [1000 * SECOND], Waits(monkeypatch)
    monkeypatch.setattr(journal, "monotonic_ns", lambda: now[0])
    one, watcher = Pulse(ring), Watcher(ring, os.getpid())
    ring.beat()
    watcher.stands_still()
    for second in range(STILL_S + 2):
        now[0] += SECOND
        waits.ns = None if waited_s is None else waited_s * SECOND * second // (STILL_S + 1)
        still = watcher.stands_still()
    assert (still, watcher.is_starved()) == (True, starved)
    assert (one.beat(), one.starved) == (STILL_S + 2, starved)
    now[0] += SECOND
    one.beat()
    assert not one.starved


def test_the_system_says_how_long_this_thread_has_waited() -> None:
    waited_ns = cpu_wait_ns("thread-self")
    assert waited_ns is not None and cpu_wait_ns(str(os.getpid())) is not None
    assert waited_ns <= (cpu_wait_ns("thread-self") or 0)
    assert cpu_wait_ns("no process") is None
