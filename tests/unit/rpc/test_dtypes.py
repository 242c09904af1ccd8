"""Every type of item has one number, in records of whatever version."""

from __future__ import annotations

from flagscale_perf.rpc.dtypes import DType


def test_numbers_stay() -> None:
    assert [(dtype.name, dtype.value) for dtype in DType][:3] == [
        ("FLOAT32", 1),
        ("FLOAT16", 2),
        ("BFLOAT16", 3),
    ]
