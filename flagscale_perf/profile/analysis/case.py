"""The case that a profile's rules examine, and findings of parts of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from flagscale_perf.analysis.rules import Case, Evidence, Finding, Rule
from flagscale_perf.profile.analysis.paired import LayerTimes, OnRank
from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.profile.analysis.sums import Books, PhaseSums
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S

GAIN = "steps in the same time"


@dataclass(frozen=True)
class ProfileCase(Case):
    """A profile as the rules examine it.

    Attributes:
        times: by kind of step, what its layers took, as far as runs were recorded.
        on_ranks: by kind of step, what takes longer on one rank than on the others.
    """

    report: ProfileReport
    times: Mapping[str, LayerTimes]
    on_ranks: Mapping[str, Sequence[OnRank]]

    @property
    def steps(self) -> Sequence[PhaseSums]:
        """Each kind of step that has any time."""
        return [sums for sums in self.report.sums.values() if sums.mean.total]

    @property
    def whole(self) -> Books | None:
        """The mean step of all kinds; None without any time."""
        books = self.report.whole
        return books if books is not None and books.total else None


ProfileRule = Rule[ProfileCase]


def takes(this: ProfileRule, books: Books, title: str, saved_ns: float, evidence: list[Evidence]) -> Finding:
    """A finding with its cost in all steps of this kind; `_together` adds the share of the whole."""
    return replace(this.finding(title, evidence, GAIN), cost_s=saved_ns * books.steps / NS_PER_S)


def part(this: ProfileRule, sums: PhaseSums, limit: str, what: str, taken_ns: float) -> list[Finding]:
    """A finding for a part of the step that takes more than the limit; otherwise none."""
    share = taken_ns / sums.mean.total
    if not this.exceeds(share, limit):
        return []
    words = f"of a {sums.phase} step, {taken_ns / NS_PER_MS:.3f} ms"
    title = f"{what} takes {100 * share:.1f} % of a {sums.phase} step"
    return [takes(this, sums.mean, title, taken_ns, [this.broke(words, share, limit)])]
