"""What a finding is made of: the case it looks into, and findings of three kinds with their cost and gain."""

from __future__ import annotations

from dataclasses import dataclass

from flagscale_perf.analysis.report import Evidence, Finding
from flagscale_perf.spine.units import number
from flagscale_perf.training.analysis.report import TrainingReport
from flagscale_perf.training.findings.advice import ADVICE
from flagscale_perf.training.findings.signals import Signals
from flagscale_perf.training.findings.thresholds import THRESHOLDS

FASTER = "tokens/s"
SOONER = "tokens in the same time"
_MAX_SHARE = 0.99  # several troubles at once may seem to take more than there is


@dataclass(frozen=True)
class Case:
    """A run to look into.

    Attributes:
        report: without findings.
        signals: beyond its tables.
        steps, rated_s: how many steps rates are made of, and their time.
    """

    report: TrainingReport
    signals: Signals
    steps: int
    rated_s: float

    def share_of_steps(self, dur_s: float | None) -> float | None:
        """Of the steps' time; None if one of them is not known."""
        return None if dur_s is None or self.rated_s <= 0 else dur_s / self.rated_s

    def part(self, name: str) -> tuple[float, float]:
        """Seconds and share of a class of goodput; zero where it is not known."""
        part = next(part for part in self.report.goodput.parts if part.name == name)
        return part.dur_s or 0.0, part.share or 0.0

    def has_spare_memory(self) -> bool:
        """Whether the device's memory is known to have room."""
        share = self.report.memory.peak_share
        return share is not None and share < limit("spare_memory")


def limit(name: str) -> float:
    """Of `THRESHOLDS`."""
    return THRESHOLDS[name].value


def exceeds(value: float | None, name: str) -> bool:
    """Whether a figure is known and above the limit of that name."""
    return value is not None and value > limit(name)


def broke(figure: str, value: float, name: str) -> Evidence:
    """A figure that broke the limit of that name."""
    threshold = THRESHOLDS[name]
    return Evidence(figure, value, threshold.value, threshold.unit, threshold.source)


def percent(share: float) -> str:
    """As text."""
    return f"{number(share * 100, 1)} %"


def slows(case: Case, name: str, title: str, share: float, evidence: list[Evidence]) -> Finding:
    """A finding that takes this share of the steps' time."""
    share = min(share, _MAX_SHARE)
    cost_s, wall_s = share * case.rated_s, case.report.goodput.wall_s
    return _finding(
        name, title, evidence, (cost_s, cost_s / wall_s if wall_s else None, share / (1 - share)), FASTER
    )


def interrupts(case: Case, name: str, title: str, evidence: list[Evidence]) -> Finding:
    """A finding that takes the whole class of goodput of that name."""
    dur_s, share = case.part(name)
    share = min(share, _MAX_SHARE)
    return _finding(name, title, evidence, (dur_s, share, share / (1 - share)), SOONER)


def warns(name: str, title: str, evidence: list[Evidence]) -> Finding:
    """A risk or a doubt."""
    return _finding(name, title, evidence, (None, None, None), FASTER)


def _finding(
    name: str,
    title: str,
    evidence: list[Evidence],
    cost: tuple[float | None, float | None, float | None],
    gain_of: str,
) -> Finding:
    advice = ADVICE[name]
    return Finding(
        name=name,
        title=title,
        cost_s=cost[0],
        cost_share=cost[1],
        gain=cost[2],
        gain_of=gain_of,
        evidence=evidence,
        first_iteration=None,
        iteration=None,
        ranks=[],
        causes=advice.causes,
        changes=advice.changes,
    )
