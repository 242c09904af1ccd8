"""Every type of item has one name and one size, on both sides of a call."""

from __future__ import annotations

from flagscale_perf.rpc.dtypes import DType


def test_every_type_has_a_size() -> None:
    assert [dtype.bytes for dtype in DType] == [4, 2, 2, 8, 8, 4, 1, 1]
