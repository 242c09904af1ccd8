"""Rates from sums: each is a sum over a sum, and None where one of them is unknown or the time is zero."""

from __future__ import annotations

from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S
from flagscale_perf.training.utilisation import FLOP_PER_TFLOP

BYTES_PER_GB = 1e9


def per_second(count: int | None, elapsed_ns: int) -> float | None:
    """Samples, tokens or FLOPs a second."""
    return None if count is None or elapsed_ns <= 0 else count / (elapsed_ns / NS_PER_S)


def per_device(total: float | None, world_size: int | None) -> float | None:
    """The share of one device."""
    return None if total is None or world_size is None else total / world_size


def tflops_per_gpu(model_flops: int | None, elapsed_ns: int, world_size: int | None) -> float | None:
    """TFLOP/s of one device, averaged over the job's."""
    flop_per_s = per_device(per_second(model_flops, elapsed_ns), world_size)
    return None if flop_per_s is None else flop_per_s / FLOP_PER_TFLOP


def per_step(elapsed_ns: int | None, steps: int) -> float | None:
    """Nanoseconds of a mean step."""
    return None if elapsed_ns is None or steps <= 0 else elapsed_ns / steps


def mean_ms(elapsed_ns: int | None, steps: int) -> float | None:
    """Milliseconds of a mean step."""
    mean_ns = per_step(elapsed_ns, steps)
    return None if mean_ns is None else mean_ns / NS_PER_MS


def as_gb(size_bytes: int | None) -> float | None:
    """Bytes in units of 10^9."""
    return None if size_bytes is None else size_bytes / BYTES_PER_GB
