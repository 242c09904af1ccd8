"""Arrays as calls carry them, and what a reply says of the server."""

from __future__ import annotations

import pytest
from tensor_rpc.wire import NOTHING_TOLD, Told, byte_count, told_apart

from flagscale_perf.rpc.dtypes import DType


@pytest.mark.parametrize(
    ("dtype", "shape", "expected"),
    [
        (DType.FLOAT32, (2, 3), 24),
        (DType.BFLOAT16, (1024, 2048), 4194304),
        (DType.INT64, (), 8),
        (DType.UINT8, (0, 5), 0),
    ],
)
def test_bytes_of_an_array(dtype, shape, expected) -> None:
    assert byte_count(dtype, shape) == expected


@pytest.mark.parametrize(
    ("send", "whole", "told", "split"),
    [
        (5, 100, (10, 50, 20), (5, 35, 10, 50)),
        (48, 100, (0, 27, 6), (6, 67, 0, 27)),  # lost the processor inside `send`
        (48, 100, (10, 27, 30), (20, 43, 10, 27)),  # and the server was busy meanwhile
        (48, 60, (0, 27, 0), (33, 0, None, 27)),  # on another clock
        (5, 100, (0, 27, 80), (5, 95, None, None)),  # ends after its reply
        (5, 20, (0, 27, 0), (5, 15, None, None)),  # longer than the call
        (5, 100, (30, 27, 20), (5, 95, None, None)),  # waited longer than until it began
        (5, 100, NOTHING_TOLD, (5, 95, None, None)),
    ],
)
def test_what_the_server_says_is_its_time(send: int, whole: int, told: Told, split: tuple[object]) -> None:
    assert told_apart(send, whole, told) == split
    assert sum(part or 0 for part in told_apart(send, whole, told)) == whole
