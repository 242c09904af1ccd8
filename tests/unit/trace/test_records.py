"""Records of operations and calls: through the ring and through a run file they stay what they were."""

from __future__ import annotations

import pytest

from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.peers.records import NameRecord
from flagscale_perf.spine.records import TYPES, place_of
from flagscale_perf.spine.slots import CRC_BYTES, PREFIX, SLOT_BYTES
from flagscale_perf.store.decoder import decode
from flagscale_perf.trace.records import ClearRecord, FieldsRecord, Kind, RowsRecord
from tests.queue_sample import TRACE, call, header, operation, process

OPERATION = operation(Kind.GET, 7, 2_000, 30, trace_id=TRACE, error=4)
SLOTTED = [OPERATION, call(8, 1_000, 90, trace_id=TRACE), NameRecord(1, 2, "rollout")]


@pytest.mark.parametrize(
    "record", [*SLOTTED, process(1, 101, "RolloutWorker")], ids=lambda r: type(r).__name__
)
def test_a_line_is_read_back(record: object) -> None:
    assert decode(encode(record)) == record


def test_ranges_are_read_back_as_a_list() -> None:
    assert decode(encode(RowsRecord(1, 7, 0, (0, 4, 9, 1)))).ranges == [0, 4, 9, 1]


@pytest.mark.parametrize(
    "record",
    [
        *SLOTTED,
        RowsRecord(1, 7, 1, (0, 4, 9, 1)),
        ClearRecord(1, 2, 30, 40, 5, 0, 1, 0, (0, 4)),
        FieldsRecord(1, 3, (1, 2)),
    ],
    ids=lambda r: type(r).__name__,
)
def test_a_slot_is_read_back(record: object) -> None:
    layout = TYPES[type(record)].layout
    assert layout is not None
    slot = bytearray(SLOT_BYTES)
    layout.packer()(memoryview(slot), 0, 1, record)
    filled = PREFIX.size + int.from_bytes(slot[6:8], "little")
    assert layout.unpack(bytes(slot[CRC_BYTES : CRC_BYTES + filled])) == record


def test_an_operation_is_placed_where_it_happened() -> None:
    assert place_of(OPERATION, header()) == (2_000, 30)
