"""The requirement's thresholds, what a figure is by them, and to which side a limit itself belongs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flagscale_perf.profile.analysis.roofline import Roofs
from flagscale_perf.profile.analysis.sums import PhaseSums

EXCELLENT, GOOD, IMPROVE = "excellent", "good", "improve"
TONES = {EXCELLENT: "good", IMPROVE: "bad"}
RULES = "the requirement's thresholds; a value that is equal to one of them is good, on both sides"
GB = 1e9


@dataclass(frozen=True)
class Verdict:
    """A figure and what it is.

    Attributes:
        name: of the figure.
        value: None where it is not known.
        unit: "share" or "GB/s".
        excellent, improve: the thresholds: above the first, below the second.
        verdict: None without a value.
        remark: where the value is from, or why there is none.
    """

    name: str
    value: float | None
    unit: str
    excellent: float
    improve: float
    verdict: str | None
    remark: str


def judged(value: float | None, excellent: float, improve: float) -> str | None:
    """By thresholds of which more is better."""
    if value is None:
        return None
    return EXCELLENT if value > excellent else IMPROVE if value < improve else GOOD


def verdicts_of(sums: Mapping[str, PhaseSums], roofs: Roofs) -> Sequence[Verdict]:
    """All that the requirement has, whether known or not."""
    return []
