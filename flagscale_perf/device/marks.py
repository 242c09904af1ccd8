"""A mark: one integer that tells which interval begins or ends, and when.

The low bits are the clock's reading, above it stands the interval's number and whether this is its end:
`monotonic_ns() + start_of(number)`.
"""

from __future__ import annotations

# 4.5 years of nanoseconds since the machine's start, and 6 bits for the rest of a positive 64-bit integer
CLOCK_BITS = 57
_CLOCK = (1 << CLOCK_BITS) - 1
_LAST_NUMBER = 31


def start_of(number: int) -> int:
    """The mark added to the clock's reading at the beginning of interval `number`, from 0 to 30."""
    return (2 * number) << CLOCK_BITS


def stop_of(number: int) -> int:
    """The mark added at its end."""
    return (2 * number + 1) << CLOCK_BITS


END = stop_of(_LAST_NUMBER)  # the end of the step on the device, which differs from that on the host


def kind_of(mark: int) -> int:
    """The mark without its time: what `start_of` or `stop_of` gave."""
    return mark & ~_CLOCK


def time_of(mark: int) -> int:
    """The clock's reading in the mark."""
    return mark & _CLOCK
