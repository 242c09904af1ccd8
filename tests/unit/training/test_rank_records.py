"""Records of ranks that contradict themselves are refused, wherever they come from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flagscale_perf.spine.jsonl import encode
from flagscale_perf.store.decoder import decode
from flagscale_perf.training.rank_records import (
    MAX_ENTRIES,
    MAX_RANKS_PER_ENTRY,
    RanksRecord,
    StragglerRecord,
)

RANKS = RanksRecord(1, 10, 1, [100, 90], [60, None], [30, 20], [1, None], [10**9, None], [3], 1)
SLOW = StragglerRecord(1, 10, False, [1], "node0", "NVIDIA H200", 0, "forward", 5, 100, "peers", None)
APART, TOO_MANY = "the ranks' lists differ in length", "entries of .* ranks each cannot be"
COLUMNS = ("iteration_ns", "work_ns", "wait_ns", "data_ns", "memory_peak_bytes")


@pytest.mark.parametrize(
    ("record", "changes", "why"),
    [
        *((RANKS, {name: [1]}, APART) for name in COLUMNS),
        (RANKS, {"host": {"run_delay_ns": [1]}}, APART),
        (RANKS, dict.fromkeys(COLUMNS, [1] * (MAX_ENTRIES + 1)), TOO_MANY),
        (RANKS, {"ranks_per_entry": 0}, TOO_MANY),
        (RANKS, {"ranks_per_entry": MAX_RANKS_PER_ENTRY + 1}, TOO_MANY),
        (SLOW, {"ranks": []}, "a straggler record without ranks"),
    ],
)
def test_a_line_whose_lists_cannot_be_is_refused(
    record: RanksRecord | StragglerRecord, changes: dict[str, Any], why: str
) -> None:
    assert decode(encode(record)) == record, "what it looks like is known now"
    with pytest.raises(ValueError, match=why):
        decode(json.dumps(json.loads(encode(record)) | changes).encode())
