"""Arrays as calls carry them: type, shape and bytes. `tensors` converts them to and from torch."""

from __future__ import annotations

import math
from typing import NamedTuple

from flagscale_perf.rpc.dtypes import DType

__all__ = ["Array", "DType", "byte_count"]


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
