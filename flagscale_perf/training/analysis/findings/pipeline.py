"""Waiting that comes from dividing a model into pipeline stages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from flagscale_perf.analysis.rules import Advice, Change, Finding, rule
from flagscale_perf.spine.averages import mean, median
from flagscale_perf.spine.limits import Limit
from flagscale_perf.spine.units import percent
from flagscale_perf.training.analysis.findings.advice import double, halve, name_of, switch_on, written
from flagscale_perf.training.analysis.findings.case import (
    MAX_SHARE,
    TrainingCase,
    TrainingRule,
    slows,
)
from flagscale_perf.training.analysis.tables import Ranks
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.ledger.ledger import Ledger
from flagscale_perf.training.phases import ONE_F_ONE_B, Kind, of_kind

_WAITING = of_kind(Kind.WAITING)
FORWARD = 1 / 3  # of a stage's work, by FLOPs


@rule(
    needs_speed=True,
    limits={
        "slow_stage": Limit(
            0.05, "share", "ours: whole layers cannot be divided more evenly than that in most models"
        )
    },
    causes=["the embedding or the loss weighs as much as several layers", "layers are not divided evenly"],
    changes=[
        Change(
            ["--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"],
            "give the slow stage fewer layers",
        ),
        switch_on(
            "--account-for-embedding-in-pipeline-split",
            "--account-for-loss-in-pipeline-split",
            text="count embedding and loss as a layer each",
        ),
        Change(["--pipeline-model-parallel-layout"], "say which layers each stage has"),
    ],
)
def slow_stage(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """A stage with more to do than the mean one: what an even division would save, and its whole excess."""
    found = _slowest(case)
    if found is None or not this.exceeds(found.excess, "slow_stage"):
        return None
    title = (
        "Other stages of the pipeline have more to do than the first"
        if found.stage is None
        else f"Pipeline stage {found.stage} has more to do"
    )
    if found.even is None:
        title += f": balancing the stages would save at most {percent(found.whole)} of the steps' time"
    else:
        title += f": balancing the stages would save {percent(found.even)} of the steps' time, and at most"
        title += f" {percent(found.whole)} if this stage did only the others' average"
    evidence = [this.broke("above the mean stage, of the iterations' time", found.excess, "slow_stage")]
    of_stage = [entry for entry in case.entries if entry.stage is not None and entry.stage == found.stage]
    slow = [rank for entry in of_stage for rank in entry.ranks]
    finding = replace(slows(this, case, title, found.whole, evidence), ranks=slow)
    if found.even is None:
        return finding
    even = min(found.even, MAX_SHARE)
    return replace(finding, least_s=even * case.rated_s, least_gain=even / (1 - even))


class _Slowest(NamedTuple):
    """The stage with the most work, in shares of the steps' time.

    Attributes:
        stage: None where it is only known not to be the first.
        excess: over the mean stage.
        even: what an even division would save; None where the schedule is not known well enough.
        whole: a bound of that, and of what the stage would save if it worked no longer than the others do on
            average. Both are replayed where steps are captured.
    """

    stage: int | None
    excess: float
    even: float | None
    whole: float


def _slowest(case: TrainingCase) -> _Slowest | None:
    work = _by_ledgers(case.report.ledgers) or _by_ranks(case.report.ranks)
    if not work:
        excess = _own_wait(case)
        return None if excess is None else _Slowest(None, excess, None, excess)
    stage = max(work, key=lambda number: work[number])
    excess = work[stage] - mean([*work.values()])
    replayed = case.stage_gains
    if replayed is None or replayed.stage != stage:
        return _Slowest(stage, excess, _even(work, stage, case.facts), excess * len(work) / (len(work) - 1))
    whole = max(replayed.even, replayed.alone)
    return _Slowest(stage, excess, max(0.0, replayed.even), whole) if whole > 0 else None


def _even(work: Mapping[int, float], slowest: int, facts: RunFacts) -> float | None:
    """Share of a step that an even division would save. In 1F1B with m micro-batches, a step loses the excess
    over the mean stage m - 1 times; and once less what the stage takes longer than each stage behind it, as
    far as it would have waited for that one: docs/formulas.md, "The ledger".
    """
    rows = (facts.micro_batch_size or 0) * (facts.data_parallel or 0)
    batches = (facts.global_batch_size or 0) // rows if rows else 0
    if not batches or facts.pipeline_schedule != ONE_F_ONE_B:
        return None
    excess = work[slowest] - mean([*work.values()])
    behind = [work[slowest] - own for stage, own in work.items() if stage > slowest]
    hidden = min(sum(behind), len(behind) * work[slowest] * FORWARD)
    return max(0.0, excess - (excess + hidden) / batches)


def _by_ledgers(ledgers: Sequence[Ledger]) -> dict[int, float]:
    """Share of a step that a usual unit of each stage works, late ranks aside; empty below two stages."""
    work = {
        each.stage: sum(each.share(ns) for name, ns in each.base_ns.items() if name not in _WAITING)
        for each in ledgers
    }
    return work if len(work) > 1 else {}


def _by_ranks(ranks: Ranks | None) -> dict[int, float]:
    """`_by_ledgers`, but by the medians of ranks; empty unless two stages' work is known."""
    if ranks is None:
        return {}
    work: dict[int, list[float]] = defaultdict(list)
    for entry, work_ms in zip(ranks.entries, ranks.median_work_ms, strict=True):
        if entry.stage is not None and work_ms is not None:
            work[entry.stage].append(work_ms)
    iteration_ms = max((known for known in ranks.median_iteration_ms if known is not None), default=0.0)
    if len(work) < 2 or not iteration_ms:
        return {}
    return {stage: median(values) / iteration_ms for stage, values in work.items()}


def _own_wait(case: TrainingCase) -> float | None:
    """An estimate from rank 0's waiting beyond the bubble, used where other ranks reported nothing."""
    imbalance_s, stages = case.report.phases.imbalance_s, case.report.overview.parallel.get("PP", 1)
    if imbalance_s is None or stages < 2:
        return None
    return case.share_of_steps(imbalance_s * (stages - 1) / stages)  # the slow one keeps 1/p of its excess


def _interleaved(case: TrainingCase) -> Change | None:
    """Half of a stage's layers; nothing where stages are interleaved, or their layers cannot be halved."""
    flag, text = (
        "--num-layers-per-virtual-pipeline-stage",
        "interleave v stages on each device: the bubble shrinks v times",
    )
    layers, stages = case.number("num_layers"), case.number("pipeline_model_parallel_size")
    if layers is None or not stages:
        return Change([flag], text)
    if case.argument(name_of(flag)) or case.argument("virtual_pipeline_model_parallel_size"):
        return None
    half, left_over = divmod(layers, 2 * stages)
    return written(case, {flag: int(half)}, text) if half and not left_over else None


@rule(
    needs_speed=True,
    limits={
        "pipeline_bubble": Limit(
            0.10,
            "share",
            "ours: half of (p-1)/(m+p-1) at m = 4 p, which Huang et al. (GPipe, 2019) call negligible",
        )
    },
    causes=["too few micro-batches for this many stages"],
    changes=[
        Advice(
            ["--num-layers-per-virtual-pipeline-stage"],
            "interleave v stages on each device: the bubble shrinks v times",
            make=_interleaved,
        ),
        double("--global-batch-size", "raise it, if the optimisation allows it: more micro-batches", 10**9),
        halve("--micro-batch-size", "lower it: more micro-batches, as long as the kernels stay efficient"),
        halve("--pipeline-model-parallel-size", "lower it, if the model fits into fewer stages"),
    ],
)
def pipeline_bubble(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Idle time that the pipeline's schedule makes inevitable."""
    share = case.report.phases.bubble_share
    if share is None or not this.exceeds(share, "pipeline_bubble"):
        return None
    stages = case.report.overview.parallel.get("PP")
    title = f"The pipeline's schedule leaves {percent(share)} of the steps' time idle with {stages} stages"
    evidence = [this.broke("bubble, of the iterations' time", share, "pipeline_bubble")]
    return slows(this, case, title, share, evidence)
