"""Phases that take more than is usual for them, in every step or more and more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from flagscale_perf.analysis.rules import Evidence, Finding, rule
from flagscale_perf.spine.chance import CHANCE
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S
from flagscale_perf.spine.limits import Limit
from flagscale_perf.spine.units import number, percent
from flagscale_perf.training.analysis.findings.advice import double, halve, switch_on
from flagscale_perf.training.analysis.findings.case import TrainingCase, TrainingRule, slows, warns
from flagscale_perf.training.analysis.findings.causes import causes_in, changes_in, named, profile
from flagscale_perf.training.analysis.findings.gains import by_replay
from flagscale_perf.training.growth import LEVELS

BACKWARD_FLOPS = 2  # of the forward pass's, without recomputation
ADAM_BYTES = 28  # of a parameter: gradient, weight and two moments read, the last three written, 4 bytes each
FLOPS = 6  # of a parameter and token, forward and backward

_SHORT = (
    *("zero_grad", "optimizer", "optimizer_copy_grad", "optimizer_unscale_check", "optimizer_clip"),
    *("optimizer_copy_param", "optimizer_count_zeros", "forward_backward_other", "other", "between_steps"),
    "exposed_stat_comm",
)


class _Judged(NamedTuple):
    """A phase that takes too long: in a usual step, what would be usual, and the figure that shows it."""

    phase: str
    dur_ns: float
    usual_ns: float
    evidence: Evidence


@rule(
    needs_speed=True,
    explains={"jitter"},
    limits={
        "long_short_phase": Limit(
            0.10,
            "share",
            "measured: none of these takes more than 9 % in FlagScale 0.8.0 on two CPU ranks "
            "(tests/recorded_noise), and a device takes less",
        ),
        "long_inner_step": Limit(
            0.10, "share", "ours: twice the 5 % that is left to it in large trainings, and see the next limit"
        ),
        "long_inner_step_bytes": Limit(
            2.0,
            "times",
            "Adam passes 28 bytes of a parameter for every 6 FLOPs of a parameter and token, at up to 150 "
            "FLOPs a byte (H100: 40 % of 989 TFLOP/s against 3.35 TB/s, 118) and 5 on a CPU",
        ),
        "long_forward": Limit(
            2.5,
            "times",
            "measured: 0.5 to 1.5 times the backward pass on a CPU (tests/recorded_noise); half of it "
            "by FLOPs",
        ),
        "long_backward": Limit(
            1.75, "times", "ours: what its FLOPs let it take of the forward pass, with room for communication"
        ),
    },
    causes=["something in this phase that other trainings do not do"],
    changes=[profile("profile some steps: what takes the time in this phase?")],
)
def long_phase(this: TrainingRule, case: TrainingCase) -> list[Finding]:
    """Phases far beyond what is usual for them, in a usual step, and by more than the host is short of."""
    known = {finding.phase for finding in case.explained_by}
    least_ns = case.host_share(() if case.is_on_one_host() else [0]) * case.anatomy.iteration_ns
    return [
        _long(this, case, each)
        for each in _judged(this, case)
        if each.phase not in known and each.dur_ns - each.usual_ns > least_ns
    ]


def _long(this: TrainingRule, case: TrainingCase, judged: _Judged) -> Finding:
    share = case.share_of_steps((judged.dur_ns - judged.usual_ns) * case.steps / NS_PER_S) or 0.0
    of_step = judged.dur_ns / max(1, case.anatomy.iteration_ns)
    title = (
        f"{named(judged.phase).capitalize()} takes {number(judged.dur_ns / NS_PER_MS, 1)} ms of each step, "
        f"{percent(of_step)} of it; about {number(judged.usual_ns / NS_PER_MS, 1)} ms would be normal"
    )
    left = judged.usual_ns / judged.dur_ns
    found = slows(this, case, title, share, [judged.evidence])
    return replace(
        by_replay(case, found, f"{judged.phase}*={left:.4f}", case.shows(share, judged.phase, part=1 - left)),
        phase=judged.phase,
        pattern="constant",
        causes=causes_in(judged.phase, this.causes),
        changes=changes_in(judged.phase, this.changes),
    )


def _judged(this: TrainingRule, case: TrainingCase) -> Iterator[_Judged]:
    usual_ns, step_ns = case.anatomy.usual_ns, max(1, case.anatomy.iteration_ns)
    has_stages = (case.facts.pipeline_parallel or 1) > 1
    for phase in _SHORT:
        if has_stages and phase == "forward_backward_other":  # interleaved stages wait for messages in it
            continue
        share = usual_ns(phase) / step_ns
        if this.exceeds(share, "long_short_phase"):
            evidence = this.broke(f"{named(phase)}, of a usual step", share, "long_short_phase")
            yield _Judged(phase, usual_ns(phase), 0.02 * step_ns, evidence)
    yield from _inner_step(this, case)
    yield from _computing(this, case)


def _inner_step(this: TrainingRule, case: TrainingCase) -> Iterator[_Judged]:
    """Adam's passes over the memory against the computing of so many tokens. Experts are not judged: their
    parameters are more than a token's FLOPs show.
    """
    overview, usual_ns = case.report.overview, case.anatomy.usual_ns
    sizes = (overview.global_batch_size, overview.seq_length)
    if None in sizes or case.report.overview.parallel.get("EP", 1) > 1:
        return
    tokens = (sizes[0] or 0) * (sizes[1] or 0) / max(1, overview.parallel.get("DP", 1))
    flops_a_byte = 5 if case.is_on_cpu else 150
    computing_ns = usual_ns("forward") + usual_ns("backward")
    by_bytes_ns = ADAM_BYTES / FLOPS * flops_a_byte / max(1.0, tokens) * computing_ns
    dur_ns, step_ns = usual_ns("optimizer_inner_step"), max(1, case.anatomy.iteration_ns)
    times = dur_ns / max(1.0, by_bytes_ns)
    if this.exceeds(dur_ns / step_ns, "long_inner_step") and this.exceeds(times, "long_inner_step_bytes"):
        evidence = this.broke("the inner step, of a usual step", dur_ns / step_ns, "long_inner_step")
        yield _Judged("optimizer_inner_step", dur_ns, min(by_bytes_ns, 0.05 * step_ns), evidence)


def _computing(this: TrainingRule, case: TrainingCase) -> Iterator[_Judged]:
    forward_ns, backward_ns = case.anatomy.usual_ns("forward"), case.anatomy.usual_ns("backward")
    if not forward_ns or not backward_ns:
        return
    by_flops = _backward_flops(case)
    if case.is_on_cpu and this.exceeds(forward_ns / backward_ns, "long_forward"):
        evidence = this.broke("forward against backward", forward_ns / backward_ns, "long_forward")
        yield _Judged("forward", forward_ns, backward_ns / by_flops, evidence)
    times = backward_ns / (by_flops * forward_ns)
    if this.exceeds(times, "long_backward"):
        evidence = this.broke(
            "backward against forward, of what the FLOPs let expect", times, "long_backward"
        )
        yield _Judged("backward", backward_ns, by_flops * forward_ns, evidence)


def _backward_flops(case: TrainingCase) -> float:
    """FLOPs of the backward pass, recomputation included, as a multiple of the forward pass's."""
    figures = case.report.figures
    if not figures.model_flops or not figures.hardware_flops:
        return BACKWARD_FLOPS
    return (BACKWARD_FLOPS + 1) * figures.hardware_flops / figures.model_flops - 1


@rule(
    needs_speed=True,
    limits={
        "host_bound": Limit(
            0.8,
            "times",
            "FLOPs: the backward pass has twice those of the forward pass; launching it takes as long, "
            "and where that takes the time the forward pass is as long as the other",
        ),
        "host_bound_mfu": Limit(
            0.30, "share", "as micro_batch_mfu: a device that computes all the time reaches more"
        ),
        "host_bound_share": Limit(0.5, "share", "ours: computing is most of the step"),
    },
    causes=[
        "kernels so short that launching them takes longer than running them",
        "Python in the forward pass: hooks, copies to the device, `.item()`",
    ],
    changes=[
        double("--micro-batch-size", "if memory allows it: as many launches for more work", most=10**6),
        switch_on("--enable-cuda-graph", text="launch a whole layer at once"),
        halve("--tensor-model-parallel-size", "if the model fits: longer kernels"),
    ],
)
def host_bound(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """A device that waits for the host's launches. On a CPU the host itself computes: not judged."""
    forward_ns, backward_ns = case.anatomy.usual_ns("forward"), case.anatomy.usual_ns("backward")
    if case.is_on_cpu or not forward_ns or not backward_ns:
        return None
    times = forward_ns * _backward_flops(case) / backward_ns / BACKWARD_FLOPS
    share, mfu = (forward_ns + backward_ns) / max(1, case.anatomy.iteration_ns), case.report.figures.mfu
    is_computing = mfu is not None and mfu / share >= this.limits["host_bound_mfu"].value
    if not this.exceeds(times, "host_bound") or not this.exceeds(share, "host_bound_share") or is_computing:
        return None
    title = (
        f"Forward takes {number(forward_ns / backward_ns, 2)} times as long as backward, which has "
        f"{number(_backward_flops(case), 1)} times its arithmetic: the device waits for the host"
    )
    evidence = [
        this.broke("forward against backward, where FLOPs say 0.5", times, "host_bound"),
        this.broke("both, of a usual step", share, "host_bound_share"),
    ]
    return replace(warns(this, title, evidence), phase="forward", pattern="constant")


_SINCE = ["something that began then: look at the log and at the hosts' other work around that iteration"]


@rule(
    needs_speed=True,
    explains={"long_phase", "data_stall", "exposed_comm", "slowdown"},
    limits={
        "growing_phase": Limit(
            0.10, "share", "ours: of a usual step; from the first eighth of the steps to the last"
        ),
        "growing_phase_rise": Limit(
            4.0, "times", f"Mann-Kendall, standard deviations: {CHANCE.value:g} of runs at a dozen of phases"
        ),
        "growing_phase_levels": LEVELS,
    },
    causes=["something that is kept and gone through again in every step: a list, a cache, a log"],
    changes=[profile("profile steps near the end: what takes longer than in the beginning?")],
)
def growing_phase(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """A phase that takes longer and longer, or from some step on, while the rest of the step does not."""
    growth = case.anatomy.growth
    if growth is None:
        return None
    grown_ns = growth.last_ns - growth.first_ns
    of_step = grown_ns / max(1, case.anatomy.iteration_ns)
    share = case.share_of_steps(growth.mean_ns * case.steps / NS_PER_S)
    if share is None or not this.exceeds(of_step, "growing_phase"):
        return None
    at = [step.iteration for step in case.anatomy.steps]
    since = at[growth.since or 0]
    how = "longer and longer" if growth.since is None else f"longer from iteration {since} on"
    title = (
        f"{named(growth.phase).capitalize()} takes {how}: from "
        f"{number(growth.first_ns / NS_PER_MS, 1)} to {number(growth.last_ns / NS_PER_MS, 1)} ms a step, "
        f"{percent(share)} of the steps' time"
    )
    evidence = [this.broke("growth, of a usual step", of_step, "growing_phase")]
    part = min(1.0, growth.mean_ns / max(1, case.anatomy.usual_ns(growth.phase)))
    found = slows(this, case, title, share, evidence)
    return replace(
        by_replay(case, found, f"{growth.phase}*={1 - part:.4f}", case.shows(share, growth.phase, part=part)),
        first_iteration=since,
        iteration=at[-1],
        phase=growth.phase,
        pattern="growing" if growth.since is None else "lasting",
        causes=[*(this.causes if growth.since is None else _SINCE), *causes_in(growth.phase, [])],
        changes=changes_in(growth.phase, this.changes),
    )
