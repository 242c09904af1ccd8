"""A figure judged by two thresholds, and to which side a threshold itself belongs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flagscale_perf.analysis.blocks import Block, Cell, Note, Quantity, Table

EXCELLENT, GOOD, IMPROVE = "excellent", "good", "improve"
TONES = {EXCELLENT: "good", IMPROVE: "bad"}
RULES = "the requirement's thresholds; a value that is equal to one of them is good, on both sides"


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


def verdict_of(
    name: str, value: float | None, unit: str, limits: tuple[float, float], remark: str
) -> Verdict:
    """`limits`: excellent is a value above the first; below the second it has to improve."""
    excellent, improve = limits
    verdict = None
    if value is not None:
        verdict = EXCELLENT if value > excellent else IMPROVE if value < improve else GOOD
    return Verdict(name, value, unit, excellent, improve, verdict, remark)


def blocks_of(verdicts: Sequence[Verdict]) -> list[Block]:
    """A row for each, with its thresholds."""
    rows: list[Sequence[Cell]] = [
        (
            one.name,
            Quantity(one.value, one.unit, 1),
            one.verdict or "not known",
            f"above {_limit(one.excellent, one.unit)}",
            f"below {_limit(one.improve, one.unit)}",
            one.remark,
        )
        for one in verdicts
    ]
    tones = [TONES.get(one.verdict or "", "") for one in verdicts]
    head = ("figure", "here", "that is", "excellent", "improve", "")
    return [Table(head, rows, tones=tones), Note(RULES)] if rows else []


def _limit(value: float, unit: str) -> str:
    return f"{100 * value:.0f} %" if unit == "share" else f"{value:g} {unit}"
