"""Types of the items of the arrays that calls carry."""

from __future__ import annotations

from enum import IntEnum


class DType(IntEnum):
    """The type of an array's items; the numbers are those of records."""

    FLOAT32 = 1
    FLOAT16 = 2
    BFLOAT16 = 3
    FLOAT64 = 4
    INT64 = 5
    INT32 = 6
    UINT8 = 7
    BOOL = 8
