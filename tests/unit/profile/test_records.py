"""Records of profiled steps, in a ring and in a run file."""

from __future__ import annotations

import pytest

from flagscale_perf.profile import records
from flagscale_perf.profile.records import Sort
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import TYPES, Record
from flagscale_perf.spine.ring import Ring
from flagscale_perf.store.decoder import decode

RECORDS = [
    records.RankRecord(0, 1, 1, 4, 1, 2, 0, 2, 0, 1, None, None, 1, 2, 3, 4, 57),
    records.StepRecord(0, 2, 1, 20, 5, 1, 10**9, 60, 30, 10, 8, 5, 4, 3, None, 2, 128, 900),
    records.RowRecord(0, 3, 1, 5, 6, 7, Sort.OPERATOR, 8, 3, 12, 500, 700, None, 10**15, None),
    records.CollectiveRecord(0, 4, 1, 2, 6, 7, 10**9, 50, 9, 10, 11, 2, 3, 0, None, None, 4096, 50),
    records.MemoryRecord(0, 5, 1, 5, 6, 7, 0, 3, 4096, -1024, 2048, 2048, 1 << 34),
    records.WindowRecord(0, 6, 10**9, 200, 3, 3, 2700, 0, 5, 6, 7, 0, 0),
    records.RoofRecord(0, 7, 12, 4 * 10**12),
    records.BeginRecord(0, 9, 10**9, None),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_what_is_stored_is_what_is_read(record: Record) -> None:
    ring = Ring.create(4)
    ring.put(record)
    assert ring.take(4) == [record]
    ring.release()
    assert decode(encode(record)) == record


def test_every_record_knows_its_process_and_number() -> None:
    own = [each for each in TYPES if each.__module__ == records.__name__]
    assert {each._fields[:2] for each in own} == {("process", "number")}
    assert len(own) == len(RECORDS)
