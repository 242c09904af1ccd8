"""Findings about ranks that are not like the others: late data, stragglers, stages with more to do."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

from flagscale_perf.analysis.report import Finding
from flagscale_perf.spine.units import number
from flagscale_perf.training.analysis.tables import Ranks, Straggler
from flagscale_perf.training.findings.case import Case, broke, exceeds, percent, slows

_STAGES = "stages"  # of `StragglerRecord.against`
_DATA = "data_loading"


def data_stall(case: Case) -> Finding | None:
    """Computing that waits for data, on rank 0 or on the rank that waits longest."""
    shares = _data_shares(case.report.ranks)
    share = max([*shares.values(), _own_data_share(case)])
    if not exceeds(share, "data_stall"):
        return None
    late = [entry for entry, value in shares.items() if value > share / 2]
    ranks = _numbers(case.report.ranks, late) if len(late) < len(shares) else []
    where = f" on {_named(ranks)}" if ranks else ""
    title = f"Waiting for data takes {percent(share)} of the steps' time{where}"
    found = slows(
        case,
        "data_stall",
        title,
        share,
        [broke("data loading, of the iterations' time", share, "data_stall")],
    )
    return replace(found, ranks=ranks)


def straggler(case: Case) -> Finding | None:
    """Ranks that work longer than their peers, or than they used to."""
    slow = [each for each in case.report.stragglers if each.against != _STAGES and each.phase != _DATA]
    slow += _late_data(case) if data_stall(case) is None else []  # which is what these ranks are late with
    share = case.share_of_steps(sum(each.lost_s for each in slow))
    if share is None or not exceeds(share, "straggler"):
        return None
    worst = max(slow, key=lambda each: each.lost_s)
    title = (
        f"{_named(worst.ranks).capitalize()} on {worst.hostname} makes the others wait {number(worst.excess_ms, 1)} ms "
        f"of each step of {number(worst.iteration_ms, 1)} ms, in {worst.phase.replace('_', ' ')}"
    )
    found = slows(
        case,
        "straggler",
        title,
        share,
        [broke("excess of slow ranks, of the iterations' time", share, "straggler")],
    )
    causes = [worst.cause, *found.causes] if worst.cause else found.causes
    return replace(
        found,
        first_iteration=worst.first_iteration,
        iteration=worst.iteration,
        ranks=worst.ranks,
        causes=causes,
    )


def slow_stage(case: Case) -> Finding | None:
    """A pipeline stage with more to do than the mean one. Dividing evenly can gain no more than that
    difference.
    """
    named = [each for each in case.report.stragglers if each.against == _STAGES]
    stage, share = _slowest_stage(case.report.ranks) or _named_stage(case, named) or (None, _own_wait(case))
    if share is None or not exceeds(share, "slow_stage"):
        return None
    title = (
        "Other stages of the pipeline have more to do than the first"
        if stage is None
        else f"Pipeline stage {stage} has more to do"
    )
    title += f": an even division would save {percent(share)} of the steps' time"
    found = slows(
        case,
        "slow_stage",
        title,
        share,
        [broke("above the mean stage, of the iterations' time", share, "slow_stage")],
    )
    ranks = case.report.ranks
    slow = (
        []
        if ranks is None or stage is None
        else [number for number, entry in enumerate(ranks.entries) if entry.stage == stage]
    )
    return replace(found, ranks=_numbers(ranks, slow))


def _late_data(case: Case) -> list[Straggler]:
    return [each for each in case.report.stragglers if each.against != _STAGES and each.phase == _DATA]


def _own_data_share(case: Case) -> float:
    return next((row.share or 0.0 for row in case.report.phases.rows if row.name == _DATA), 0.0)


def _data_shares(ranks: Ranks | None) -> dict[int, float]:
    if ranks is None:
        return {}
    pairs = enumerate(zip(ranks.median_data_ms, ranks.median_iteration_ms, strict=True))
    return {
        entry: data_ms / iteration_ms
        for entry, (data_ms, iteration_ms) in pairs
        if data_ms is not None and iteration_ms
    }


def _slowest_stage(ranks: Ranks | None) -> tuple[int, float] | None:
    """The stage that works longest and by what share of an iteration it exceeds the mean stage; None unless
    every rank's place is known.
    """
    if ranks is None:
        return None
    work: dict[int, list[float]] = defaultdict(list)
    for entry, work_ms in zip(ranks.entries, ranks.median_work_ms, strict=True):
        if entry.stage is not None and work_ms is not None:
            work[entry.stage].append(work_ms)
    iteration_ms = max((known for known in ranks.median_iteration_ms if known is not None), default=0.0)
    if len(work) < 2 or not iteration_ms:
        return None
    medians = {stage: statistics.median(values) for stage, values in work.items()}
    slowest = max(medians, key=lambda stage: medians[stage])
    return slowest, (medians[slowest] - statistics.fmean(medians.values())) / iteration_ms


def _named_stage(case: Case, named: list[Straggler]) -> tuple[int, float] | None:
    """From the records of slow stages: of their excess the others would get their part."""
    share = case.share_of_steps(sum(each.lost_s for each in named) * _part_to_hand_over(case))
    return (max(named, key=lambda each: each.lost_s).stage, share) if named and share is not None else None


def waits_explained_s(case: Case) -> float:
    """Rank 0's time of waiting for stragglers and for other ranks' data: it is their cost, not that of what
    it waits in.
    """
    shares, own = _data_shares(case.report.ranks), _own_data_share(case)
    later = max(0.0, max(shares.values(), default=0.0) - own)
    return sum(each.lost_s for each in case.report.stragglers) + later * case.rated_s


def _own_wait(case: Case) -> float | None:
    """From rank 0's waiting, where the ranks tell nothing: without what other findings explain of it."""
    imbalance_s = case.report.phases.imbalance_s
    return (
        None
        if imbalance_s is None
        else case.share_of_steps(max(0.0, imbalance_s - waits_explained_s(case)) * _part_to_hand_over(case))
    )


def _part_to_hand_over(case: Case) -> float:
    """Of p stages the slow one keeps 1/p of its excess."""
    stages = case.report.overview.parallel.get("PP", 1)
    return (stages - 1) / stages if stages > 1 else 0.0


def _numbers(ranks: Ranks | None, entries: list[int]) -> list[int]:
    if ranks is None:
        return []
    return [
        rank
        for entry in entries
        for rank in range(ranks.entries[entry].first_rank, ranks.entries[entry].last_rank + 1)
    ]


def _named(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if all(later == earlier + 1 for earlier, later in pairwise(ranks)):
        return f"ranks {ranks[0]}-{ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks[:8]))}{' and others' if len(ranks) > 8 else ''}"
