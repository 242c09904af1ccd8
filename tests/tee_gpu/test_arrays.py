"""Arrays as calls carry them."""

from __future__ import annotations

import pytest
from tensor_rpc.arrays import DType, byte_count


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
