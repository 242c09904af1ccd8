"""Arrays as calls carry them: type, shape and bytes. `tensors` converts them to and from torch."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple


class DType(IntEnum):
    """The type of an array's items; the numbers are those on the wire."""

    FLOAT32 = 1
    FLOAT16 = 2
    BFLOAT16 = 3
    FLOAT64 = 4
    INT64 = 5
    INT32 = 6
    UINT8 = 7
    BOOL = 8

    @property
    def bytes(self) -> int:
        """Size of one item."""
        return _BYTES[self]


_BYTES = {
    DType.FLOAT32: 4,
    DType.FLOAT16: 2,
    DType.BFLOAT16: 2,
    DType.FLOAT64: 8,
    DType.INT64: 8,
    DType.INT32: 4,
    DType.UINT8: 1,
    DType.BOOL: 1,
}


class Array(NamedTuple):
    """Items in C order, without gaps.

    Attributes:
        dtype: of an item.
        shape: () for a single item.
        data: flat, of format "B"; as many bytes as `byte_count` says.
    """

    dtype: DType
    shape: tuple[int, ...]
    data: memoryview


def byte_count(dtype: DType, shape: tuple[int, ...]) -> int:
    """Size of such an array in bytes."""
    return dtype.bytes * math.prod(shape)
