"""Ranks that wait for one another: stragglers, and communication that no computing hides."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis.rules import Advice, Change, Finding, rule
from flagscale_perf.spine.limits import Limit
from flagscale_perf.spine.units import number, percent
from flagscale_perf.training.analysis.findings.advice import is_set, provided, switch_on
from flagscale_perf.training.analysis.findings.case import TrainingCase, TrainingRule, slows
from flagscale_perf.training.analysis.findings.causes import profile_of
from flagscale_perf.training.analysis.findings.lateness import late_finding
from flagscale_perf.training.phases import GROUPS

_PROFILE = "--perf-profile-steps"


@rule(
    needs_speed=True,
    explains={"jitter", "slowdown"},
    limits={
        "straggler": Limit(0.01, "share", "ours: what one rank costs all others is worth a look from 1 % on")
    },
    causes=[
        "a device with a lower clock",
        "another process on its host",
        "a bad link or disk",
        "more work for its data",
    ],
    changes=[
        Advice(
            [], "look at that device and its host, then leave its node out", make=lambda case: _look(case)
        ),
        switch_on(
            "--manual-gc",
            text="if its pauses come and go: let all ranks collect garbage in the same iterations",
        ),
    ],
)
def straggler(this: TrainingRule, case: TrainingCase) -> list[Finding]:
    """Ranks that work longer than the others do in the same steps."""
    if (chosen := case.options.perf_straggler_threshold) is not None:
        limit = Limit(chosen / 100, "share", "--perf-straggler-threshold of the run")
        this = replace(this, limits={"straggler": limit})
    found = [
        late_finding(this, case, ledger, row, "straggler")
        for ledger in case.report.ledgers
        for row in ledger.late
        if row.phase != "data_loading" or row.pattern != "constant"
    ]
    return [_with_profile(this, case, finding) for finding in found if finding is not None]


def _with_profile(this: TrainingRule, case: TrainingCase, found: Finding) -> Finding:
    """The finding with a profile of its ranks as the first change, unless steps are profiled. Lateness that
    comes and goes is caused by no slow device.
    """
    is_periodic = found.pattern == "periodic"
    text = (
        "take a late step of this rank apart, and those beside it: what differs is the cause"
        if is_periodic
        else "take some steps of this rank apart: which layer or operator takes longer, or only waits"
    )
    first = found.first_iteration if is_periodic else max(20, found.first_iteration or 0)
    last = case.facts.train_iters
    change = profile_of(found.ranks[:1], first or 1, last, text)
    others = [one for one in found.changes if not any(flag.startswith(_PROFILE) for flag in one.flags)]
    if not is_periodic:
        is_profiled = case.options.perf_profile_steps is not None
        return replace(found, changes=[*([] if is_profiled else [change]), *others])
    own = [cause for cause in found.causes if cause not in this.causes]
    return replace(found, changes=[change, *others], causes=[*own, "code that runs in these steps only"])


def _look(case: TrainingCase) -> Change:
    device = (
        "" if case.is_on_cpu else "that device's clocks and errors (nvidia-smi -q -d PERFORMANCE,ECC), and "
    )
    then = "" if case.is_on_one_host() else ", then leave it out"
    return Change([], f"look at {device}what else runs on its host (top){then}")


@rule(
    limits={
        "slow_link": Limit(0.01, "share", "ours: what one link costs all ranks is worth a look from 1 % on")
    },
    causes=["a bad cable or port, or errors on it", "a route that other traffic takes, too"],
    changes=[Change([], "look at the counters of that link's ports, then leave its node out")],
)
def slow_link(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Neighbours in the pipeline whose messages take longer than those of others: the fastest one there and
    the fastest one back, which every step waits for at least once.
    """
    captured = case.report.captured
    if captured is None or not captured.links:
        return None
    link, *others = captured.links
    share = (link.round_ms - link.usual_ms) / captured.step_ms
    if not this.exceeds(share, "slow_link"):
        return None
    where = " and ".join(
        f"{rank} ({host or 'unknown'})" for rank, host in zip(link.ranks, link.hostnames, strict=True)
    )
    took = f"{number(link.round_ms, 1)} ms there and back, other links {number(link.usual_ms, 1)} ms"
    more = f", and {len(others)} more links are slow" if others else ""
    evidence = [this.broke("of a captured step, at least: what the link takes longer", share, "slow_link")]
    found = slows(this, case, f"The link between ranks {where} is slow: {took}{more}", share, evidence)
    first, last = captured.steps[0], captured.steps[-1]
    return replace(found, ranks=link.ranks, first_iteration=first, iteration=last)


@rule(
    needs_speed=True,
    limits={
        "exposed_comm": Limit(
            0.05,
            "share",
            "ours: with overlap only the last bucket of gradients and the first of parameters is waited for",
        )
    },
    causes=[
        "gradients and parameters are exchanged after computing instead of during it",
        "slow links between the nodes",
        "a rank that is late inside the exchange (a link, a hook), which a profile of all ranks decides",
    ],
    changes=[
        switch_on("--overlap-grad-reduce", text="reduce gradients during the backward pass"),
        switch_on(
            "--use-distributed-optimizer",
            "--overlap-param-gather",
            text="gather parameters during the forward pass",
        ),
        provided(
            Change(
                ["--ddp-bucket-size"],
                "if both are on: change the size of a bucket, so that less is left for the end",
            ),
            is_set("overlap_grad_reduce"),
        ),
    ],
)
def exposed_comm(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Gradients and parameters exchanged while nothing is computed; without waiting for slow ranks in it. Not
    where the host is short of CPU for as long: its threads exchange where there is no device.
    """
    share = case.exchange_share()
    if not this.exceeds(share - case.host_share(), "exposed_comm"):
        return None
    what = "Exchanging gradients and parameters that no computing hides"
    if any(finding.phase in GROUPS["Comm"] for finding in case.explained_by):
        return None
    evidence = [this.broke("exposed communication, of the iterations' time", share, "exposed_comm")]
    found = slows(this, case, f"{what} takes {percent(share)} of the steps' time", share, evidence)
    phase = max(("exposed_grad_comm", "exposed_param_comm"), key=case.anatomy.usual_ns)
    return replace(found, phase=phase, pattern="constant")
