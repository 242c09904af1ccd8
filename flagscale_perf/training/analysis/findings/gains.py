"""What the end of a finding would gain: by a replay of captured steps; where there are none, by arithmetic,
which is a bound, as it does not know who waits for whom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flagscale_perf.analysis.replays import offered
from flagscale_perf.analysis.rules import Finding
from flagscale_perf.spine.units import stretch
from flagscale_perf.training.analysis.findings.case import ARITHMETIC, MAX_SHARE, TrainingCase, alike
from flagscale_perf.training.analysis.replayed import StageGains
from flagscale_perf.training.ledger.ledger import LateRow, Ledger

NOT_CAPTURED = "arithmetic: `flagscale-perf capture RUN` would replace it"


def by_replay(case: TrainingCase, finding: Finding, words: str, is_shown: bool = True) -> Finding:
    """The finding with the gain of this change. `is_shown`: whether captured steps, where there are any, have
    what the finding is about.
    """
    asked = case.asked
    if asked is None:
        return replace(finding, what_if=words, gain_from=NOT_CAPTURED)
    if not is_shown:
        return replace(finding, gain_from=f"arithmetic: {asked.steps} do not show it")
    found = asked.predict(words)
    if found is None:
        return finding
    gain = offered(found, "")
    if gain.most is None:
        return replace(finding, gain_from=f"arithmetic: {found.evidence} differ too much to tell")
    return replace(
        finding,
        what_if=found.text,
        gain_from=f"replay of {found.evidence}",
        least_gain=gain.least,
        likely_gain=gain.gain,
        gain=gain.most,
    )


def whose(ranks: Sequence[int]) -> str:
    """How a change names ranks."""
    return f"rank={','.join(map(str, ranks))}"


def between(finding: Finding, shares: tuple[float, float, float], where_from: str) -> Finding:
    """The finding with a gain between the first and the last of these shares of the steps' time."""
    least, likely, most = (part / (1 - part) for part in (min(share, MAX_SHARE) for share in shares))
    return replace(finding, least_gain=least, likely_gain=likely, gain=most, gain_from=where_from)


def of_late(case: TrainingCase, finding: Finding, ledger: Ledger, row: LateRow) -> Finding:
    """Of ranks that are late: in every step by a replay of them at their peers' speed; of others by what
    their lateness is priced by. Without a pipeline every recorded step is a replay: from one collective to
    the next the ranks work, and the last one counts.
    """
    asked = case.asked
    if row.pattern == "constant" and asked is not None:
        words = " ".join((whose(row.ranks), f"{row.phase}=peers"))
        is_shown = alike(asked.longer_ns(row.ranks, row.phase), row.usual_ns)
        if (found := by_replay(case, finding, words, is_shown)).what_if:
            return found
    is_priced = row.is_replayed or (case.facts.pipeline_parallel or 1) == 1
    if not is_priced:
        return replace(finding, gain_from=NOT_CAPTURED)
    steps = stretch("recorded step", ledger.first_iteration, ledger.iteration)
    where_from = f"replay of {asked.steps}" if row.is_replayed and asked is not None else steps
    alone, least, most = (ledger.share(ns) for ns in (row.alone_ns, row.least_ns, row.most_ns))
    return between(finding, (min(alone, least), alone, max(alone, most)), where_from)


def of_stages(case: TrainingCase, finding: Finding, found: StageGains) -> Finding:
    """Of stages that are divided evenly."""
    least, most = found.even_within
    where_from = f"replay of {case.asked.steps}" if case.asked else ARITHMETIC
    return between(finding, (least, found.even, most), where_from)
