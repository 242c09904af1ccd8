"""The requirement's thresholds, the verdict on each figure, and which side of the limit counts as met."""

from __future__ import annotations

from flagscale_perf.trace.figures import MIB

REQUIREMENT = "the requirement of these traces"
COMPUTE_GOOD = 0.80  # more is good
QUEUE_GOOD, QUEUE_BAD = 0.20, 0.30  # less is good, more is an anomaly; both limits themselves: watch
FAST, SLOW = 500 * MIB, 100 * MIB  # more is good, less is suspect; both limits themselves: fair
RULES = (
    "the requirement's limits: compute good above 80 %; queue (get + put) good below 20 %, anomaly above 30 %"
    ", 20 to 30 % watch; throughput good above 500 MiB/s, suspect below 100, from 100 to 500 fair"
    " (the requirement's MB is 2^20 bytes)"
)
TONES = {"good": "good", "suspect": "bad", "anomaly": "bad"}


def of_queue(share: float | None) -> str | None:
    """Verdict on the share of get and put in a function's time; None without one."""
    if share is None:
        return None
    return "good" if share < QUEUE_GOOD else "anomaly" if share > QUEUE_BAD else "watch"


def of_compute(share: float | None) -> str | None:
    """Verdict on the share of a function's own work; None without one."""
    if share is None:
        return None
    return "good" if share > COMPUTE_GOOD else "watch"


def of_speed(bytes_per_s: float | None) -> str | None:
    """Verdict on a throughput in bytes per second; None without one."""
    if bytes_per_s is None:
        return None
    return "good" if bytes_per_s > FAST else "suspect" if bytes_per_s < SLOW else "fair"
