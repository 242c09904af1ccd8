"""Computing that waits for data."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis.rules import Change, Finding, Limit, rule
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.units import numbered, percent
from flagscale_perf.training.analysis.findings.advice import (
    double,
    either,
    give,
    provided,
    switch_off,
    while_cores_are_free,
)
from flagscale_perf.training.analysis.findings.case import TrainingCase, TrainingRule, ranks_of, slows


@rule(
    needs_speed=True,
    explains={"straggler", "jitter"},
    limits={
        "data_stall": Limit(
            0.02, "share", "ours: a loader with prefetch hands over a batch in 1 % of a step or less"
        ),
        "data_stall_ms": Limit(
            5, "ms", "measured: handing over a step's batches takes 1 to 4 ms where the host is busy"
        ),
    },
    causes=["too few loader processes", "slow or far storage", "tokenising or packing on the fly"],
    changes=[
        while_cores_are_free(
            double("--num-workers", "raise it: more processes prepare batches ahead", most=16, least=2)
        ),
        provided(
            either(
                give("--data-cache-path", "keep the dataset's index files on a local disk"),
                lambda case: Change(
                    [], f"see that --data-cache-path, {case.argument('data_cache_path')}, is on a local disk"
                ),
            ),
            lambda case: not case.argument("mock_data"),
        ),
        switch_off(
            "--no-create-attention-mask-in-dataloader",
            "do not make and copy masks that the attention kernel does not read",
        ),
    ],
)
def data_stall(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Data loading on rank 0, or on the rank that loads longest."""
    shares = case.data_shares()
    share = max([*shares.values(), case.phase_share("data_loading")]) - case.host_share()
    share_ms = share * case.anatomy.iteration_ns / NS_PER_MS
    if not this.exceeds(share, "data_stall") or not this.exceeds(share_ms, "data_stall_ms"):
        return None
    if any(finding.phase == "data_loading" for finding in case.explained_by):
        return None
    late = [entry for entry, value in shares.items() if value > share / 2]
    ranks = ranks_of(case.report.ranks, late) if len(late) < len(shares) else []
    where = f" on {numbered('rank', ranks)}" if ranks else ""
    title = f"Waiting for data takes {percent(share)} of the steps' time{where}"
    evidence = [this.broke("data loading, of the iterations' time", share, "data_stall")]
    found = slows(this, case, title, share, evidence)
    return replace(found, ranks=ranks, phase="data_loading", pattern="constant")
