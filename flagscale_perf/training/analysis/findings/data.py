"""Computing that waits for data."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis.rules import Change, Finding, rule, unless
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.limits import Limit
from flagscale_perf.spine.units import percent
from flagscale_perf.training.analysis.findings.advice import (
    double,
    is_set,
    switch_off,
    while_cores_are_free,
)
from flagscale_perf.training.analysis.findings.case import TrainingCase, TrainingRule, slows
from flagscale_perf.training.analysis.findings.gains import by_replay
from flagscale_perf.training.analysis.findings.lateness import late_finding

_MASKS = "--no-create-attention-mask-in-dataloader"
_OF_SOME = Change(
    [], "see what slows the loaders of these ranks only: their storage, longer samples, other processes"
)


@rule(
    needs_speed=True,
    explains={"jitter"},
    limits={
        "data_stall": Limit(
            0.02, "share", "ours: a loader with prefetch hands over a batch in 1 % of a step or less"
        ),
        "data_stall_ms": Limit(
            5,
            "ms",
            "measured: handing over a batch takes 1 to 4 ms where the host is busy; where CPUs compute as "
            "well, each micro-batch has to wait for one",
        ),
    },
    causes=["too few loader processes", "slow or far storage", "tokenising or packing on the fly"],
    changes=[
        while_cores_are_free(
            double("--num-workers", "raise it: more processes prepare batches ahead", most=16, least=2)
        ),
        unless(
            Change([], "have the dataset's index files on a local disk (--data-cache-path)"),
            is_set("mock_data"),
        ),
        switch_off(_MASKS, "do not make and copy masks that the attention kernel does not read"),
    ],
)
def data_stall(this: TrainingRule, case: TrainingCase) -> list[Finding]:
    """Data loading that all ranks have in common, and that of ranks that load longer than the others."""
    found = [
        late_finding(this, case, ledger, row, "data_stall")
        for ledger in case.report.ledgers
        for row in ledger.late
        if row.phase == "data_loading" and row.pattern == "constant"
    ]
    common = _of_all(this, case)
    return [*([] if common is None else [common]), *(_of_some(one) for one in found if one is not None)]


def _of_some(found: Finding) -> Finding:
    """The finding for some ranks: without what applies only if all ranks load alike."""
    common = [change for change in found.changes if _MASKS not in change.flags]
    return replace(found, changes=[_OF_SOME, *common])


def _of_all(this: TrainingRule, case: TrainingCase) -> Finding | None:
    share = min(case.phase_share("data_loading"), _least_of_a_group(case)) - case.host_share()
    surely = share - case.unknown_host_share()
    share_ms = surely * case.anatomy.iteration_ns / NS_PER_MS / _turns(case)
    if not this.exceeds(surely, "data_stall") or not this.exceeds(share_ms, "data_stall_ms"):
        return None
    if any(finding.phase == "data_loading" for finding in case.explained_by):
        return None
    title = f"Waiting for data takes {percent(share)} of the steps' time"
    evidence = [this.broke("data loading, of the iterations' time", share, "data_stall")]
    found = slows(this, case, title, share, evidence)
    found = by_replay(case, found, "data_loading=0", case.shows(share, "data_loading"))
    return replace(found, phase="data_loading", pattern="constant")


def _turns(case: TrainingCase) -> float:
    """How often in a step a rank may have to wait for a CPU before it has its batch."""
    facts = case.facts
    sizes = (facts.global_batch_size, facts.micro_batch_size, facts.data_parallel)
    if not case.is_on_cpu or None in sizes:
        return 1
    batch, micro_batch, replicas = (size or 0 for size in sizes)
    return max(1, batch / max(1, micro_batch * replicas))


def _least_of_a_group(case: TrainingCase) -> float:
    """The least share of the steps that a rank of a tensor-parallel group spends in data loading. A batch is
    broadcast inside a group, so early ranks wait there for the last one. 1 without tensor parallelism.
    """
    ranks, mean_ms = case.report.ranks, case.mean_step_ms()
    if ranks is None or case.report.ledgers or not mean_ms or (case.facts.tensor_parallel or 1) < 2:
        return 1.0
    return min((data_ms / mean_ms for data_ms in ranks.median_data_ms if data_ms is not None), default=1.0)
