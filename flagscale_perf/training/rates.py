"""Rates from sums: each is a sum over a sum, and None where one of them is unknown or the time is zero."""

from __future__ import annotations

from typing import NamedTuple

from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S
from flagscale_perf.training.records import IntervalRecord
from flagscale_perf.training.utilisation import FLOP_PER_TFLOP, Scale, Utilisation, Work

BYTES_PER_GB = 1e9


class Rates(NamedTuple):
    """What is shown of a stretch of training."""

    tflops_per_gpu: float | None
    tflops: float | None
    samples_per_s: float | None
    tokens_per_s: float | None
    utilisation: Utilisation
    iteration_ms: float | None


def tflops(model_flops: int | None, elapsed_ns: int) -> float | None:
    """TFLOP/s of all devices together."""
    return (
        None
        if model_flops is None or elapsed_ns <= 0
        else model_flops / (elapsed_ns / NS_PER_S) / FLOP_PER_TFLOP
    )


def tflops_per_gpu(model_flops: int | None, elapsed_ns: int, world_size: int | None) -> float | None:
    """TFLOP/s of one device, averaged over the job's."""
    total = tflops(model_flops, elapsed_ns)
    return None if total is None or world_size is None else total / world_size


def per_second(count: int | None, elapsed_ns: int) -> float | None:
    """Samples or tokens a second."""
    return None if count is None or elapsed_ns <= 0 else count / (elapsed_ns / NS_PER_S)


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
        utilisation=Work.of(interval).utilisation(scale),
        iteration_ms=mean_ms(elapsed_ns, interval.steps),
    )
