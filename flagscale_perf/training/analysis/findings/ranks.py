"""Ranks that wait for one another: stragglers, and communication that no computing hides."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis.rules import Advice, Change, Finding, rule
from flagscale_perf.spine.limits import Limit
from flagscale_perf.spine.units import number, percent
from flagscale_perf.training.analysis.findings.advice import is_set, name_of, provided, switch_on
from flagscale_perf.training.analysis.findings.case import EXCHANGES, TrainingCase, TrainingRule, slows
from flagscale_perf.training.analysis.findings.causes import named, profile_of
from flagscale_perf.training.analysis.findings.gains import by_replay, whose
from flagscale_perf.training.analysis.findings.lateness import late_finding
from flagscale_perf.training.ledger.division import DOCUMENTS, EXPERTS, MICROBATCHES
from flagscale_perf.training.ledger.ledger import Ledger
from flagscale_perf.training.phases import GROUPS, Kind, of_kind

_PROFILE = "--perf-profile-steps"
_HYBRID, _LONGEST = "--hybrid-context-parallel", "--max-seqlen-per-dp-cp-rank"  # not of every host
_MORE_WORK = {
    DOCUMENTS: "longer documents: attention grows with the squares of their lengths",
    MICROBATCHES: "more micro-batches, or fuller ones",
    EXPERTS: "experts that receive more tokens than others",
}
_MAY_BE_WORK = "more work: longer documents, more micro-batches"


def _divided(case: TrainingCase) -> Change | None:
    """Only where the host is known to have the flag, and takes it."""
    is_there = name_of(_HYBRID) in (case.facts.arguments or {})
    if not is_there or case.argument(name_of(_HYBRID)) or (case.facts.pipeline_parallel or 1) > 1:
        return None
    return Change([_HYBRID, _LONGEST], "let the host divide packed documents among ranks by what they cost")


def _evened_experts(case: TrainingCase) -> Change | None:
    if case.knows_arguments and not case.argument("num_moe_experts") and not case.argument("num_experts"):
        return None
    flags = ["--moe-aux-loss-coeff", "--moe-router-enable-expert-bias", "--moe-expert-capacity-factor"]
    off = [flag for flag in flags if not case.argument(name_of(flag))]
    text = (
        "if experts receive unequally many tokens: let the router balance them, which changes what is trained"
    )
    return Change(off, text) if off else None


_BALANCE: dict[str, list[Change]] = {
    DOCUMENTS: [
        Change(
            [],
            "give every rank batches of equal cost, not of as many samples: sort documents by length, or pack"
            " them so that the sums of their squared lengths agree, too",
        ),
        Advice([_HYBRID, _LONGEST], "let the host divide documents by what they cost", make=_divided),
    ],
    MICROBATCHES: [Change([], "give every rank as many micro-batches, and as much in each of them")],
    EXPERTS: [Advice(["--moe-aux-loss-coeff"], "let the router balance experts", make=_evened_experts)],
}


def _against(kind: str | None) -> list[Change]:
    """What evens out this kind of work; where it is not known which it is, documents and experts."""
    return _BALANCE[kind] if kind else [*_BALANCE[DOCUMENTS], *_BALANCE[EXPERTS]]


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
        _MAY_BE_WORK,
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
        (late_finding(this, case, ledger, row, "straggler"), row.work_kind)
        for ledger in case.report.ledgers
        for row in ledger.late
        if row.phase != "data_loading" or row.pattern != "constant"
    ]
    return [_advised(this, case, finding, kind) for finding, kind in found if finding is not None]


def _advised(this: TrainingRule, case: TrainingCase, found: Finding, kind: str | None) -> Finding:
    """What helps against its cause: unequal work is no device's fault."""
    if found.cause == "work":
        own = [change for change in found.changes if change not in this.changes]
        causes = [_MORE_WORK[kind]] if kind else [*_MORE_WORK.values()]
        return replace(found, causes=causes, changes=[*own, *_against(kind)])
    if found.cause == "speed":
        found = replace(found, causes=[cause for cause in found.causes if cause != _MAY_BE_WORK])
    advised = _with_profile(this, case, found)
    return replace(advised, changes=[*_against(kind), *advised.changes]) if found.cause == "both" else advised


@rule(
    needs_speed=True,
    explains={"jitter"},
    limits={
        "uneven_batches": Limit(
            0.01, "share", "ours: what ranks wait for the one with the most work is worth a look from 1 % on"
        )
    },
    causes=[*_MORE_WORK.values()],
    changes=_against(None),
)
def uneven_batches(this: TrainingRule, case: TrainingCase) -> list[Finding]:
    """Work that differs between ranks, now one's and now another's: what it costs beside late ranks."""
    return [
        _uneven(this, case, ledger)
        for ledger in case.report.ledgers
        if this.exceeds(ledger.share(ledger.uneven.cost_ns), "uneven_batches")
    ]


def _uneven(this: TrainingRule, case: TrainingCase, ledger: Ledger) -> Finding:
    cost, least, most, step = (
        number(ledger.step_ms(ns), 1)
        for ns in (ledger.uneven.cost_ns, ledger.uneven.least_ns, ledger.uneven.most_ns, ledger.total_ns)
    )
    of_stage = f" of stage {ledger.stage}" if len(case.report.ledgers) > 1 else ""
    title = f"Uneven batches: the last of {ledger.units}{of_stage} costs {cost} ms of each step of {step} ms"
    share = ledger.share(ledger.uneven.cost_ns)
    figure = (
        f"of the steps' time ({least} to {most} ms a step; in {ledger.uneven.steps:,} of {ledger.steps:,})"
    )
    found = slows(this, case, title, share, [this.broke(figure, share, "uneven_batches")])
    found = replace(found, first_iteration=ledger.first_iteration, iteration=ledger.iteration, cause="work")
    return by_replay(case, found, "work=equal")


@rule(
    needs_speed=True,
    explains={"jitter"},
    limits={
        "last_in_turns": Limit(
            0.1, "share", "measured: beyond what hosts explain; in healthy runs on shared cores up to 8 %"
        )
    },
    causes=[
        "storage or a cache that serves one rank after the other",
        "garbage collection, in other steps on each rank",
        "work that differs from step to step, where it is not known",
    ],
    changes=[
        switch_on("--manual-gc", text="let all ranks collect garbage in the same iterations"),
        Change(
            [], "see what these steps have in common on the rank that is last in them: its files, its data"
        ),
    ],
)
def last_in_turns(this: TrainingRule, case: TrainingCase) -> list[Finding]:
    """Ranks that are late in turns, in one phase before all others, and no one of them for the most part."""
    return [
        _in_turns(this, case, ledger, phase)
        for ledger in case.report.ledgers
        for phase, turns in ledger.turns.items()
        if phase not in of_kind(Kind.WAITING)
        and 2 * turns.total_ns > ledger.in_turns_ns
        # halfway between an even part and all of it
        and 2 * ledger.units * turns.most_ns < (ledger.units + 1) * turns.total_ns
        and this.exceeds(ledger.share(turns.gain_ns) - case.host_share(), "last_in_turns")
    ]


def _in_turns(this: TrainingRule, case: TrainingCase, ledger: Ledger, phase: str) -> Finding:
    cost, step = (number(ledger.step_ms(ns), 1) for ns in (ledger.turns[phase].gain_ns, ledger.total_ns))
    of_stage = f" of stage {ledger.stage}" if len(case.report.ledgers) > 1 else ""
    title = f"Ranks{of_stage} are late in turns: the last costs {cost} ms of each step of {step} ms, in"
    share = ledger.share(ledger.turns[phase].gain_ns)
    evidence = [this.broke("of the steps' time, what the last comes later by it", share, "last_in_turns")]
    found = slows(this, case, f"{title} {named(phase)}", share, evidence)
    found = replace(found, first_iteration=ledger.first_iteration, iteration=ledger.iteration, phase=phase)
    return by_replay(case, found, f"{phase}=peers")


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
    found = replace(found, ranks=link.ranks, first_iteration=first, iteration=last)
    faster = " ".join((whose(link.ranks), f"p2p*={link.usual_ms / link.round_ms:.3f}"))
    return by_replay(case, found, faster)


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
    if not this.exceeds(share - case.host_share() - case.unknown_host_share(), "exposed_comm"):
        return None
    what = "Exchanging gradients and parameters that no computing hides"
    if any(finding.phase in GROUPS["Comm"] for finding in case.explained_by):
        return None
    evidence = [this.broke("exposed communication, of the iterations' time", share, "exposed_comm")]
    found = slows(this, case, f"{what} takes {percent(share)} of the steps' time", share, evidence)
    found = by_replay(case, found, " ".join(f"{name}=0" for name in EXCHANGES), case.shows(share, *EXCHANGES))
    phase = max(EXCHANGES, key=case.anatomy.usual_ns)
    return replace(found, phase=phase, pattern="constant")
