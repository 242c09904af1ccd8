"""What a process of a job stores into its ring; what it does beside others is in tests/processes."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from flagscale_perf.spine.ring import Ring
from flagscale_perf.writer.membership import _Store
from tests.fakes import make_event


def test_the_ring_is_asked_for_once() -> None:
    ring, asked = Ring.create(8), []

    def answer() -> Ring:
        asked.append(len(asked))
        return ring

    store = _Store(answer)
    for _ in range(3):
        store.put(make_event())
    store.close(ring, "completed")
    store.put(make_event())
    assert (asked, ring.stored, store.lost, ring.dropped) == ([0], 3, 1, 0)
    ring.release()


def test_without_a_ring_every_record_is_counted_as_lost() -> None:
    store = _Store(lambda: None)
    for _ in range(3):
        store.put(make_event())
    assert store.lost == 3


class _Interrupt(Exception):
    """What a signal's handler raises."""


@pytest.fixture
def armed() -> Iterator[list[bool]]:
    """Once its only value is true, a handler sets it to false and raises, within some 0.1 ms."""
    is_armed = [False]

    def handler(*_: object) -> None:
        if is_armed[0]:
            is_armed[0] = False
            raise _Interrupt

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
    yield is_armed
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_handler_that_raises_stops_no_later_record(armed: list[bool]) -> None:
    ring, record, interrupts = Ring.create(8), make_event(), 0
    store = _Store(lambda: ring)
    until = time.monotonic() + 1
    while time.monotonic() < until:
        try:
            armed[0] = True
            store.put(record)
            armed[0] = False
        except _Interrupt:
            interrupts += 1
            seen = ring.stored + ring.dropped
            store.put(record)
            assert ring.stored + ring.dropped > seen, f"nothing is stored after {interrupts} interrupts"
    assert interrupts > 10
    store.close(ring, "completed")
    ring.release()
