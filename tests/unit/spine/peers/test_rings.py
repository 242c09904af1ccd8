"""Many rings drained as one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from flagscale_perf.spine.peers.handover import Door, Source, connect, give, job_key
from flagscale_perf.spine.peers.rings import LINGER_NS, Rings
from flagscale_perf.spine.records import EventRecord, RunEnd
from flagscale_perf.spine.ring import Ring


class Job:
    """Its drained side, and processes, which all are this one."""

    def __init__(self, key: str) -> None:
        door = Door.open(key)
        assert door is not None
        self.now_ns = 0
        self.come: list[Source] = []
        self.gone: list[Source] = []
        self.rings = Rings(door, self.come.append, self.gone.append, lambda: self.now_ns)
        self._key = key

    def join(self, slots: int = 4) -> Ring:
        """One more process."""
        ring = Ring.create(slots)
        connection = connect(self._key)
        assert connection is not None and ring.fd is not None
        give(connection, ring.fd)
        connection.close()
        return ring

    def take(self, limit: int = 99) -> list[object]:
        """Texts of the records, and `None` for what is said about a process."""
        slots = self.rings.take(limit)
        self.rings.commit(len(slots))
        return [slot.record and slot.record.text for slot in slots]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(job_key("test", str(tmp_path)))
    yield made
    made.now_ns += 2 * LINGER_NS
    assert made.rings.end is not None
    for source in made.come:
        os.close(source.connection)


def event(text: str) -> EventRecord:
    return EventRecord("note", 0, 0, text)


def test_records_of_all_come_with_what_is_said_about_each(job: Job) -> None:
    first, second = job.join(), job.join()
    assert job.take() == []
    first.put(event("a"))
    second.put(event("b"))
    first.put(event("c"))
    assert sorted(map(str, job.take())) == ["None", "None", "a", "b", "c"]
    for ring in (first, second):
        ring.close("completed", 1)
    assert (job.take(), [source.end for source in job.gone]) == ([None, None], ["completed", "completed"])
    first.release()
    second.release()


def test_what_is_not_committed_comes_again(job: Job) -> None:
    ring = job.join()
    ring.put(event("a"))
    assert [slot.record for slot in job.rings.take(9)] == [None, event("a")]
    assert [slot.record for slot in job.rings.take(9)] == [event("a")]
    job.rings.commit(1)
    assert job.take() == []
    ring.close("completed", 1)
    job.take()
    ring.release()


def test_nobody_is_always_last(job: Job) -> None:
    rings = [job.join() for _ in range(2)]
    for ring, text in zip(rings, "ab", strict=True):
        ring.put(event(text))
    assert [job.take(2), job.take(2)] == [[None, "a"], [None, "b"]]
    for ring in rings:
        ring.close("completed", 1)
    job.take()
    for ring in rings:
        ring.release()


def test_the_end_is_some_time_after_the_last_process(job: Job) -> None:
    ring = job.join()
    ring.put(event("a"))
    job.take()
    job.now_ns = 5 * LINGER_NS
    assert job.rings.end is None
    ring.close("exit 1", 1)
    job.take()
    job.now_ns += LINGER_NS - 1
    assert job.rings.end is None
    job.now_ns += 1
    end = job.rings.end
    assert end is not None and (end.reason, end.at_ns) == ("exit 1", 5 * LINGER_NS)
    ring.release()


def test_the_session_is_in_every_ring_for_the_next_writer(job: Job) -> None:
    ring = job.join()
    job.rings.receive()
    assert job.rings.session is None
    job.rings.session = "20240129_103000"
    late = job.join()
    job.rings.receive()
    job.rings.trouble = "disk full"
    assert [(each.session, each.trouble) for each in (ring, late)] == [("20240129_103000", "disk full")] * 2
    for each in (ring, late):
        each.close("completed", 1)
    job.take()
    job.take()
    ring.release()
    late.release()


def test_drops_are_counted_over_all_the_gone_ones_too(job: Job) -> None:
    ring = job.join(slots=1)
    for _ in range(3):
        ring.put(event("a"))
    ring.put(RunEnd("no ring record", 0, 0, 0))
    job.rings.receive()
    assert job.rings.dropped == 3
    ring.close("completed", 1)
    job.take()
    job.take()
    assert (job.rings.dropped, job.rings.is_deserted) == (3, True)
    ring.release()
