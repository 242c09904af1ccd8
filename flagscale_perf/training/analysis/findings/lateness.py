"""Findings of late ranks, made of the rows of a ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from flagscale_perf.analysis.rules import Change, Finding
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S
from flagscale_perf.spine.units import duration, number, numbered
from flagscale_perf.training.analysis.findings.case import TrainingCase, TrainingRule, slows
from flagscale_perf.training.analysis.findings.causes import named
from flagscale_perf.training.analysis.findings.gains import of_late
from flagscale_perf.training.analysis.replayed import KNOWN_SCHEDULES, is_judged
from flagscale_perf.training.ledger.division import ASSUMED
from flagscale_perf.training.ledger.ledger import (
    BY_PATH,
    INSIDE,
    OFF_PATH,
    SHARED,
    UNDECIDED,
    LateRow,
    Ledger,
)

_UNDECIDED = Change(
    ["--perf-profile-steps"],
    "take some steps of these ranks apart: it decides whether this is work or waiting, and whose",
)
_HIDDEN = Change(
    ["--perf-capture-steps 20"],
    "capture 20 steps: other stages may hold a step up just as long, and captured steps show what the whole"
    " job would gain",
)


def late_finding(
    this: TrainingRule, case: TrainingCase, ledger: Ledger, row: LateRow, limit: str
) -> Finding | None:
    """The finding of a late unit, with its cost. None below the limit of that name, off the critical path, or
    where its host's shortage of CPU explains it.
    """
    if row.label == OFF_PATH:
        return None
    share = ledger.share(row.price_ns)
    if not this.exceeds(share - case.host_share(row.ranks, beyond_others=True), limit):
        return None
    seen = [slow.observed for slow in case.report.stragglers if slow.ranks == list(row.ranks)]
    observed = [f"observed: {each}" for each in dict.fromkeys(filter(None, seen))]
    figures = [_figures(ledger, row), *_work(ledger, row), *observed]
    evidence = [this.broke(f"of the steps' time ({'; '.join(figures)})", share, limit)]
    found = slows(this, case, _title(case, ledger, row), share, evidence)
    found = replace(
        found,
        first_iteration=row.first_iteration,
        iteration=row.iteration,
        ranks=list(row.ranks),
        phase=row.phase,
        pattern=row.pattern,
        step_ms=row.usual_ns / NS_PER_MS,
        cause=row.cause,
        changes=[*_deciding(case, row), *found.changes],
    )
    return of_late(case, found, ledger, row)


def _deciding(case: TrainingCase, row: LateRow) -> Iterator[Change]:
    if row.label == UNDECIDED:
        yield _UNDECIDED
    if case.facts.pipeline_schedule in KNOWN_SCHEDULES and is_judged(row):
        yield _HIDDEN


def _title(case: TrainingCase, ledger: Ledger, row: LateRow) -> str:
    one = len(row.ranks) == 1
    who = f"{numbered('rank', row.ranks).capitalize()}{_host_of(case, row.ranks[0])}"
    if row.pattern == "single":
        return (
            f"{who} {'stops' if one else 'stop'} for {duration(row.usual_ns / NS_PER_S)}, "
            f"in {named(row.phase)}, in step {row.first_iteration}"
        )
    makes = f"{who} {'makes' if one else 'make'} the others wait"
    if row.cause == "work":
        makes = f"{who} {'has' if one else 'have'} more work than the others, which wait"
    if row.pattern in ("periodic", "bursts"):
        rhythm = f", {_every(row)}" if row.distance else ""
        costs = _ms(row.price_ns / row.steps / NS_PER_MS)
        steps = f"{row.steps} of {ledger.steps} steps{rhythm}"
        does = f"{who} {'costs' if one else 'cost'} the job" if row.label == BY_PATH else makes
        return f"{does} {costs} ms each in {steps}, in {named(row.phase)}"
    costs, step = _ms(ledger.step_ms(row.price_ns)), _ms(ledger.step_ms(ledger.total_ns))
    where = f"in {named(row.phase)}{_when(row)}"
    if row.label == BY_PATH:
        price = f"{costs} ms of each step of {step} ms, {where}"
        if row.cause == "work":
            return f"{who} {'has' if one else 'have'} more work, which costs {price}"
        return f"{who} {'costs' if one else 'cost'} {price}"
    return f"{makes} {costs} ms of each step of {step} ms, {where}"


def _figures(ledger: Ledger, row: LateRow) -> str:
    between = f"{_ms(ledger.step_ms(row.least_ns))} to {_ms(ledger.step_ms(row.most_ns))} ms a step"
    longer = f"{_ms(row.usual_ns / NS_PER_MS)} ms longer than the others"
    figures = f"{between}; {longer}, last in {row.last_in} of {ledger.steps} steps"
    if row.label == INSIDE:
        most = f"its experts have the most in {row.last_in} of {ledger.steps} steps"
        figures = f"{between}, inside the layers; {most}"
    if row.label == BY_PATH and row.cost_ns > row.price_ns:
        waits = _ms(ledger.step_ms(row.cost_ns))
        return f"{figures}; its stage waits {waits} ms; other stages would hide all but this"
    if row.label != SHARED:
        return figures
    alone, together = _ms(ledger.step_ms(row.alone_ns)), _ms(ledger.step_ms(ledger.late_ns))
    return f"{figures}; without it alone a step gains {alone} ms, without all late ranks {together} ms"


def _work(ledger: Ledger, row: LateRow) -> Iterator[str]:
    """What of the price more work explains."""
    part = row.more_work
    if part is None or row.work_ratio is None:
        return
    if not any(part):
        yield f"{number(row.work_ratio, 2)} times the others' work: all of it is slower at equal work"
        return
    share, *ends = (_ms(ledger.step_ms(row.price_ns * each)) for each in part)
    slower = _ms(ledger.step_ms(row.price_ns * (1 - part[0])))
    explains = f"explains {share} ms of it ({' to '.join(ends)}), {slower} ms are slower at equal work"
    if_so = ", assumed: no rank's work differs between steps" if row.work_speed == ASSUMED else ""
    yield f"{number(row.work_ratio, 2)} times the others' work {explains}{if_so}"


def _every(row: LateRow) -> str:
    is_exact = row.iteration - row.first_iteration == (row.distance or 0) * (row.steps - 1)
    return f"{'' if is_exact else 'about '}every {row.distance} steps"


def _when(row: LateRow) -> str:
    said = {"growing": ", longer and longer", "lasting": f" from step {row.first_iteration} on"}
    return said.get(row.pattern, "")


def _host_of(case: TrainingCase, rank: int) -> str:
    host = next((entry.hostname for entry in case.entries if rank in entry.ranks), None)
    return f" on {host}" if host else ""


def _ms(dur_ms: float) -> str:
    return number(dur_ms, 1)
