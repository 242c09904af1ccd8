"""Waiting that comes from dividing a model into pipeline stages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from flagscale_perf.analysis.rules import Advice, Change, Finding, rule
from flagscale_perf.spine.averages import mean, median
from flagscale_perf.spine.limits import Limit
from flagscale_perf.spine.units import percent
from flagscale_perf.training.analysis.findings.advice import double, halve, name_of, switch_on, written
from flagscale_perf.training.analysis.findings.case import TrainingCase, TrainingRule, slows
from flagscale_perf.training.analysis.findings.gains import NOT_CAPTURED, by_replay, of_stages
from flagscale_perf.training.analysis.replayed import StageGains
from flagscale_perf.training.analysis.tables import Ranks
from flagscale_perf.training.ledger.ledger import Ledger
from flagscale_perf.training.phases import Kind, of_kind

_WAITING = of_kind(Kind.WAITING)


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
    """A stage with more to do than the mean one: at most what it would save if it did only the others'
    average; where steps are captured, what an even division would.
    """
    found = _slowest(case)
    if found is None or not this.exceeds(found.excess, "slow_stage"):
        return None
    title = (
        "Other stages of the pipeline have more to do than the first"
        if found.stage is None
        else f"Pipeline stage {found.stage} has more to do"
    )
    if found.replayed is None:
        title += f": balancing the stages would save at most {percent(found.whole)} of the steps' time"
    else:
        even = max(0.0, found.replayed.even)
        title += f": balancing the stages would save {percent(even)} of the steps' time, and at most"
        title += f" {percent(found.whole)} if this stage did only the others' average"
    evidence = [this.broke("above the mean stage, of the iterations' time", found.excess, "slow_stage")]
    of_stage = [entry for entry in case.entries if entry.stage is not None and entry.stage == found.stage]
    slow = [rank for entry in of_stage for rank in entry.ranks]
    finding = replace(slows(this, case, title, found.whole, evidence), ranks=slow)
    if found.replayed is None:
        return replace(finding, gain_from=NOT_CAPTURED)
    least_s = max(0.0, found.replayed.even) * case.rated_s
    return of_stages(case, replace(finding, least_s=least_s), found.replayed)


class _Slowest(NamedTuple):
    """The stage with the most work, in shares of the steps' time.

    Attributes:
        stage: None where it is only known not to be the first.
        excess: over the mean stage.
        whole: what the stage would save if it worked no longer than the others do on average; a bound of that
            where it is not `replayed`.
    """

    stage: int | None
    excess: float
    whole: float
    replayed: StageGains | None = None


def _slowest(case: TrainingCase) -> _Slowest | None:
    work = _by_ledgers(case.report.ledgers) or _by_ranks(case.report.ranks)
    if not work:
        excess = _own_wait(case)
        return None if excess is None else _Slowest(None, excess, excess)
    stage = max(work, key=lambda number: work[number])
    excess = work[stage] - mean([*work.values()])
    replayed = None if case.asked is None else case.asked.stage_gains
    if replayed is None or replayed.stage != stage:
        return _Slowest(stage, excess, excess * len(work) / (len(work) - 1))
    whole = max(replayed.even, replayed.alone)
    return _Slowest(stage, excess, whole, replayed) if whole > 0 else None


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
    found = slows(this, case, title, share, evidence)
    interleaved = _interleaved(case)
    is_possible = interleaved is not None and " " in interleaved.flags[0]
    return by_replay(case, found, "v=2") if is_possible else found
