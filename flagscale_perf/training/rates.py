"""Sums, and rates from sums: unknown where one of the parts is unknown, or where the time is zero."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, NamedTuple

from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.figures import GIGABYTES, TERAFLOPS
from flagscale_perf.spine.units import as_ms
from flagscale_perf.training.columns import numbers_of


class Rates(NamedTuple):
    """Rates over some steps; None where not known. MFU and HFU are shares of 1."""

    tflops_per_gpu: float | None
    tokens_per_s: float | None
    samples_per_s: float | None
    mfu: float | None
    hfu: float | None
    iteration_ms: float | None
    p50_ms: float | None
    p95_ms: float | None

    @classmethod
    def of_summary(cls, part: object) -> Rates:
        """Reads them from a part of a summary."""
        return cls(*(getattr(part, name) for name in SUMMARY_NAMES.values()))

    def in_summary(self) -> dict[str, Any]:
        """Under the names that a summary has for them."""
        return dict(zip(SUMMARY_NAMES.values(), self, strict=True))


# The requirement's own files fix what a summary calls a rate.
SUMMARY_NAMES = {
    "tflops_per_gpu": "avg_tflops_per_gpu",
    "tokens_per_s": "avg_throughput_tokens",
    "samples_per_s": "avg_throughput_samples",
    "mfu": "avg_mfu",
    "hfu": "avg_hfu",
    "iteration_ms": "avg_iteration_ms",
    "p50_ms": "p50_iteration_ms",
    "p95_ms": "p95_iteration_ms",
}


def plus(one: int | None, other: int | None) -> int | None:
    """Both together: a sum with a hole in it is no sum."""
    return None if one is None or other is None else one + other


def highest(*values: int | None) -> int | None:
    """The largest of those that are known."""
    return max([value for value in values if value is not None], default=None)


def per_second(count: int | None, elapsed_ns: int) -> float | None:
    """Samples, tokens or FLOPs a second."""
    return None if count is None or elapsed_ns <= 0 else count / (elapsed_ns / NS_PER_S)


def known_tokens(tokens: int, samples: int) -> int | None:
    """The tokens of these samples; None where the host's batches do not show any."""
    return tokens or (None if samples else 0)


def per_device(total: float | None, world_size: int | None) -> float | None:
    """The share of one device."""
    return None if total is None or world_size is None else total / world_size


def tflops_per_gpu(model_flops: int | None, elapsed_ns: int, world_size: int | None) -> float | None:
    """TFLOP/s of one device, averaged over the job's."""
    flop_per_s = per_device(per_second(model_flops, elapsed_ns), world_size)
    return None if flop_per_s is None else flop_per_s / TERAFLOPS.divisor


def tflops_of_all(
    model_flops: Sequence[int | None], elapsed_ns: Sequence[int], world_size: int | None
) -> Sequence[float | None]:
    """The same of several stretches of time."""
    flops, times_ns = numbers_of(model_flops), numbers_of(elapsed_ns)
    is_exact = flops is not None and times_ns is not None and 0 < times_ns.min() <= times_ns.max() < 1 << 53
    if not is_exact or world_size is None:
        return [*map(tflops_per_gpu, model_flops, elapsed_ns, repeat(world_size))]
    # the same operations in the same order: the same floats
    made: list[float | None] = (flops / (times_ns / NS_PER_S) / world_size / TERAFLOPS.divisor).tolist()
    return made


def per_step(elapsed_ns: int | None, steps: int) -> float | None:
    """Nanoseconds of a mean step."""
    return None if elapsed_ns is None or steps <= 0 else elapsed_ns / steps


def mean_ms(elapsed_ns: int | None, steps: int) -> float | None:
    """Milliseconds of a mean step."""
    return as_ms(per_step(elapsed_ns, steps))


def as_gb(size_bytes: int | None) -> float | None:
    """Bytes in units of 10^9."""
    return None if size_bytes is None else size_bytes / GIGABYTES.divisor
