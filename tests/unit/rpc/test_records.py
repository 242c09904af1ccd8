"""Records of calls fit the ring."""

from __future__ import annotations

import pytest

from flagscale_perf.rpc.records import CallRecord, ServedRecord
from flagscale_perf.spine.ring import Ring


@pytest.mark.parametrize("made", [CallRecord, ServedRecord])
def test_record_goes_through_the_ring(made) -> None:
    record = made(*range(len(made._fields) - 1), "BatchLinear")
    ring = Ring.create()
    ring.put(record)
    try:
        assert ring.take(2) == [record]
    finally:
        ring.release()
