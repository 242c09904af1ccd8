"""Sums, and rates from sums: unknown where one of the parts is unknown, or where the time is zero."""

from __future__ import annotations

from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.figures import GIGABYTES, TERAFLOPS
from flagscale_perf.spine.units import as_ms


def plus(one: int | None, other: int | None) -> int | None:
    """Both together: a sum with a hole in it is no sum."""
    return None if one is None or other is None else one + other


def highest(*values: int | None) -> int | None:
    """The largest of those that are known."""
    return max([value for value in values if value is not None], default=None)


def per_second(count: int | None, elapsed_ns: int) -> float | None:
    """Samples, tokens or FLOPs a second."""
    return None if count is None or elapsed_ns <= 0 else count / (elapsed_ns / NS_PER_S)


def per_device(total: float | None, world_size: int | None) -> float | None:
    """The share of one device."""
    return None if total is None or world_size is None else total / world_size


def tflops_per_gpu(model_flops: int | None, elapsed_ns: int, world_size: int | None) -> float | None:
    """TFLOP/s of one device, averaged over the job's."""
    flop_per_s = per_device(per_second(model_flops, elapsed_ns), world_size)
    return None if flop_per_s is None else flop_per_s / TERAFLOPS.divisor


def per_step(elapsed_ns: int | None, steps: int) -> float | None:
    """Nanoseconds of a mean step."""
    return None if elapsed_ns is None or steps <= 0 else elapsed_ns / steps


def mean_ms(elapsed_ns: int | None, steps: int) -> float | None:
    """Milliseconds of a mean step."""
    return as_ms(per_step(elapsed_ns, steps))


def as_gb(size_bytes: int | None) -> float | None:
    """Bytes in units of 10^9."""
    return None if size_bytes is None else size_bytes / GIGABYTES.divisor
