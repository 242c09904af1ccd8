"""Rates from sums: each is a sum over a sum, and None where one of them is unknown or the time is zero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from flagscale_perf.core.clock import NS_PER_MS, NS_PER_S
from flagscale_perf.core.records import IntervalRecord

FLOP_PER_TFLOP = 1e12
BYTES_PER_GB = 1e9


class Scale(NamedTuple):
    """By what totals are divided to speak of one device.

    Attributes:
        world_size: devices of the job; None if not known.
        peak_flop_per_s: dense peak of one device; None if not known.
    """

    world_size: int | None
    peak_flop_per_s: float | None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Scale:
        """From a run header's facts; values that cannot be divided by count as unknown."""
        return cls(_positive(facts.get("world_size")), _positive(facts.get("peak_flop_per_s")))


class Rates(NamedTuple):
    """What is shown of a stretch of training. `mfu` is a share of 1."""

    tflops_per_gpu: float | None
    tflops: float | None
    samples_per_s: float | None
    tokens_per_s: float | None
    mfu: float | None
    iteration_ms: float | None


def tflops(model_flops: int | None, elapsed_ns: int) -> float | None:
    """TFLOP/s of all devices together."""
    return None if model_flops is None or elapsed_ns <= 0 else model_flops / (elapsed_ns / NS_PER_S) / FLOP_PER_TFLOP


def tflops_per_gpu(model_flops: int | None, elapsed_ns: int, world_size: int | None) -> float | None:
    """TFLOP/s of one device, averaged over the job's."""
    total = tflops(model_flops, elapsed_ns)
    return None if total is None or world_size is None else total / world_size


def per_second(count: int | None, elapsed_ns: int) -> float | None:
    """Samples or tokens a second."""
    return None if count is None or elapsed_ns <= 0 else count / (elapsed_ns / NS_PER_S)


def mfu(model_flops: int | None, elapsed_ns: int, scale: Scale) -> float | None:
    """Share of the peak that trained the model: 0.5 is half."""
    achieved = tflops_per_gpu(model_flops, elapsed_ns, scale.world_size)
    return None if achieved is None or scale.peak_flop_per_s is None else achieved * FLOP_PER_TFLOP / scale.peak_flop_per_s


def mean_ms(elapsed_ns: int | None, steps: int) -> float | None:
    """Milliseconds for one step."""
    return None if elapsed_ns is None or steps <= 0 else elapsed_ns / steps / NS_PER_MS


def as_gb(size_bytes: int | None) -> float | None:
    """Bytes in units of 10^9."""
    return None if size_bytes is None else size_bytes / BYTES_PER_GB


def rates_of(interval: IntervalRecord, scale: Scale) -> Rates:
    """All rates of one interval."""
    elapsed_ns = interval.iteration_ns
    return Rates(
        tflops_per_gpu=tflops_per_gpu(interval.model_flops, elapsed_ns, scale.world_size),
        tflops=tflops(interval.model_flops, elapsed_ns),
        samples_per_s=per_second(interval.samples, elapsed_ns),
        tokens_per_s=per_second(interval.tokens, elapsed_ns),
        mfu=mfu(interval.model_flops, elapsed_ns, scale),
        iteration_ms=mean_ms(elapsed_ns, interval.steps),
    )


def _positive(value: Any) -> Any:
    return value if isinstance(value, int | float) and 0 < value < 1e30 else None
