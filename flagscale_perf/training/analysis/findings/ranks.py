"""Ranks that wait for one another: stragglers, and communication that no computing hides."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis.rules import Change, Finding, Limit, rule, unless
from flagscale_perf.spine.units import number, numbered, percent
from flagscale_perf.training.analysis.findings.advice import either, provided, switch_on
from flagscale_perf.training.analysis.findings.case import TrainingCase, TrainingRule, slows
from flagscale_perf.training.analysis.findings.places import named
from flagscale_perf.training.analysis.tables import Straggler
from flagscale_perf.training.phases import GROUPS


@rule(
    needs_speed=True,
    explains={"jitter", "long_phase"},
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
        either(
            unless(
                Change(
                    [],
                    "look at that device's clocks and errors (nvidia-smi -q -d PERFORMANCE,ECC), "
                    "then leave its node out",
                ),
                lambda case: case.is_on_cpu or case.is_on_one_host(),
            ),
            lambda case: _look(case),
        ),
        switch_on(
            "--manual-gc",
            text="if its pauses come and go: let all ranks collect garbage in the same iterations",
        ),
    ],
)
def straggler(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Ranks that work longer than their peers, or than they used to."""
    slow = [each for each in case.report.stragglers if each.against != "stages"]
    for known in case.explained_by:  # late data; and a phase that changes is longer than it used to be
        is_past = known.pattern != "constant"
        slow = [each for each in slow if each.phase != known.phase or (is_past and each.against != "past")]
    share = case.share_of_steps(sum(map(case.lost_s, slow)))
    if share is not None and case.is_on_one_host():  # late where the host is short of CPU: no rank's doing
        share -= case.host_share()
    if share is None or not this.exceeds(share, "straggler"):
        return None
    worst = max(slow, key=case.lost_s)
    evidence = [this.broke("excess of slow ranks, of the iterations' time", share, "straggler")]
    return replace(
        slows(this, case, _title(worst), share, evidence),
        first_iteration=worst.first_iteration,
        iteration=worst.iteration,
        ranks=worst.ranks,
        phase=worst.phase,
        pattern="constant",
        causes=[worst.cause, *this.causes] if worst.cause else list(this.causes),
    )


def _look(case: TrainingCase) -> Change:
    """What to do about a rank of which no device is known, or whose host is the only one."""
    device = (
        "" if case.is_on_cpu else "that device's clocks and errors (nvidia-smi -q -d PERFORMANCE,ECC), and "
    )
    then = "" if case.is_on_one_host() else ", then leave it out"
    return Change([], f"look at {device}what else runs on its host (top){then}")


def _title(worst: Straggler) -> str:
    one = len(worst.ranks) == 1
    who = f"{numbered('rank', worst.ranks).capitalize()} on {worst.hostname}"
    how_long = f"{number(worst.excess_ms, 1)} ms"
    where = f"of each step of {number(worst.iteration_ms, 1)} ms, in {named(worst.phase)}"
    if worst.against == "past":
        return f"{who} {'works' if one else 'work'} {how_long} longer than before, {where}"
    return f"{who} {'makes' if one else 'make'} the others wait {how_long} {where}"


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
            lambda case: bool(case.argument("overlap_grad_reduce")),
        ),
    ],
)
def exposed_comm(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Gradients and parameters exchanged while nothing is computed; without waiting for slow ranks in it."""
    share = case.phase_share("exposed_grad_comm", "exposed_param_comm")
    share -= case.share_of_steps(case.explained_wait_s()) or 0.0
    if not this.exceeds(share, "exposed_comm"):
        return None
    what = "Exchanging gradients and parameters that no computing hides"
    if any(finding.phase in GROUPS["Comm"] for finding in case.explained_by):
        return None
    evidence = [this.broke("exposed communication, of the iterations' time", share, "exposed_comm")]
    found = slows(this, case, f"{what} takes {percent(share)} of the steps' time", share, evidence)
    phase = max(("exposed_grad_comm", "exposed_param_comm"), key=case.anatomy.usual_ns)
    return replace(found, phase=phase, pattern="constant")
