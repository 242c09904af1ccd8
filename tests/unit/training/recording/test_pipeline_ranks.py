"""The other ranks on their way through the drain."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.spine.records import EventRecord, RunEnd
from flagscale_perf.spine.ring import Ring
from flagscale_perf.training.recording.pipeline import OneRank, Sources
from flagscale_perf.training.records import IntervalRecord, StepRecord
from tests.fakes import MS, make_event, make_marks, make_phases, make_reading, make_step
from tests.unit.writer.test_drain import drain_of, finish, make_drain, put, records_in, ring, said

__all__ = ["ring", "said"]  # fixtures


class Others(OneRank):
    """Notes what it is told, has something to say at each occasion."""

    def __init__(self) -> None:
        self.told: list = []
        self.has_taken = False

    def step(self, step, phases, cuts):
        self.told.append((step.iteration, phases and phases.record))

    def reading(self, reading):
        self.told.append(reading.at_ns)

    def interval(self, interval):
        return [make_event("rank", text=f"behind {interval.iteration}")]

    def take(self):
        first, self.has_taken = not self.has_taken, True
        return ([make_event("rank", text="met")], ["a remark"]) if first else ([], [])

    def close(self):
        return [make_event("rank", text="closed")], []


def test_what_is_heard_of_other_ranks_stands_where_it_belongs(
    ring: Ring, tmp_path: Path, said: list[str]
) -> None:
    others, readings = Others(), [make_reading(500 * MS)]
    sources = Sources(lambda: ([readings.pop()] if readings else [], []), others)
    drain = drain_of(ring, make_drain(ring, tmp_path, said)._task, said, sources)
    put(ring, *range(1, 10))
    ring.put(make_marks(10))
    ring.put(make_step(10))
    drain.cycle()
    put(ring, 11)
    finish(ring, drain)
    assert others.told == [
        500 * MS,
        *((number, None) for number in range(1, 10)),
        (10, make_phases(10)),
        (11, None),
    ]
    kinds = (EventRecord, IntervalRecord, RunEnd)
    shown = [
        getattr(record, "text", type(record).__name__)
        for record in records_in(tmp_path)
        if isinstance(record, kinds)
    ]
    first, last = ["IntervalRecord", "behind 10"], ["IntervalRecord", "behind 11", "closed", "RunEnd"]
    assert shown == ["met", "a remark", *first, *last]
    assert len([record for record in records_in(tmp_path) if isinstance(record, StepRecord)]) == 11
    assert said == []
