"""What a process of a job stores into its ring; what it does beside others is in tests/processes."""

from __future__ import annotations

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
