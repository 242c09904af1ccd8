"""Single steps that take longer than those around them."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis.rules import Advice, Change, Finding, names_no_cause, rule, unless
from flagscale_perf.spine.chance import CHANCE, HIT_SHARE, MIN_HITS, PERIOD_TOLERANCE
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S
from flagscale_perf.spine.limits import Limit
from flagscale_perf.spine.units import number, percent
from flagscale_perf.training.analysis.findings.advice import double, switch_on, written
from flagscale_perf.training.analysis.findings.anatomy import ALIKE_SHARE, EVENT, Longer
from flagscale_perf.training.analysis.findings.case import TrainingCase, TrainingRule, slows
from flagscale_perf.training.analysis.findings.causes import causes_in, changes_in, place_of, profile
from flagscale_perf.training.analysis.findings.signals import PER_MILLE, SLOW_STEP
from flagscale_perf.training.ledger.naming import EVENT_SCATTER


def _collect_together(case: TrainingCase) -> Change | None:
    """All ranks in the same iterations; less often where they do so already."""
    flags, interval = ["--manual-gc", "--manual-gc-interval"], case.number("manual_gc_interval")
    if not case.argument("manual_gc"):
        text = "collect at fixed iterations, on all ranks together, every 100 or more"
        return written(case, {flags[0]: True, flags[1]: 100}, text)
    if not interval:
        return None  # it never collects between steps
    return written(case, {flags[1]: int(max(100, 2 * interval))}, f"less often than every {interval:g} steps")


def _profiling(case: TrainingCase) -> list[str]:
    steps = case.options.perf_profile_steps
    if steps is None:
        return []
    return [
        f"profiling: --perf-profile-steps {steps} makes these iterations longer, and, while their events are "
        "read, the next ones"
    ]


@rule(
    needs_speed=True,
    explains={"jitter"},
    limits={
        "periodic_steps": Limit(
            0.005, "share", "ours: regular pauses are worth a flag from half a percent on"
        ),
        "period_hits": MIN_HITS,
        "period_hit_share": HIT_SHARE,
        "period_tolerance": PERIOD_TOLERANCE,
        "period_chance": CHANCE,
    },
    causes=[
        "Python collects garbage, on each rank at another time",
        "something else that the host does at regular intervals",
    ],
    changes=[
        Advice(
            ["--manual-gc", "--manual-gc-interval"],
            "collect at fixed iterations, on all ranks together, every 100 or more",
            make=_collect_together,
        ),
        double("--log-interval", "raise it, if the pauses fall on the iterations that are logged", 10**9),
    ],
)
def periodic_steps(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Slow steps at even distances."""
    found = case.anatomy.periodic
    if found is None:
        return None
    period, phase = found.period, found.phase
    share = case.anatomy.part_of_all(found.excess_ns * len(case.anatomy.steps) / period.distance)
    if not this.exceeds(share, "periodic_steps"):
        return None
    title = (
        f"About every {period.distance} steps one takes {number(found.excess_ns / NS_PER_MS, 1)} ms longer"
        f"{place_of(phase)}: {percent(share)} of the steps' time"
    )
    evidence = [
        this.broke("time of these steps above the usual", share, "periodic_steps"),
        this.broke("how many there are, one behind the other", len(period.hits), "period_hits"),
    ]
    return replace(
        slows(this, case, title, share, evidence),
        first_iteration=period.hits[0],
        iteration=period.hits[-1],
        phase=phase,
        pattern="periodic",
        causes=[*_profiling(case), *causes_in(phase, this.causes)],
        changes=changes_in(phase, this.changes),
    )


@rule(
    needs_speed=True,
    explains={"jitter"},
    limits={
        "slow_steps": Limit(0.01, "share", "ours: slow steps are worth a look from 1 % on"),
        "slow_steps_event": EVENT,
        "slow_steps_scatter": EVENT_SCATTER,
        "slow_steps_alike": ALIKE_SHARE,
        "slow_steps_chance": CHANCE,
    },
    causes=["what this phase waits for, or does in some steps only", "batches of very different lengths"],
    changes=[
        profile("profile some of these steps: what takes longer in this phase than in the step before?")
    ],
)
def slow_steps(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Steps that are slow in one phase, and out of proportion to the rest of the step."""
    longer = case.anatomy.longer
    if longer is None:
        return None
    share = case.anatomy.part_of_all(sum(longer.excess_ns))
    if not this.exceeds(share, "slow_steps"):
        return None
    in_bursts = longer.comes_in_bursts(len(case.anatomy.steps))
    title = f"{_who(longer, in_bursts)}{place_of(longer.phase)}: {percent(share)} of the steps' time"
    evidence = [this.broke("time of these steps above the usual, in this phase", share, "slow_steps")]
    return replace(
        slows(this, case, title, share, evidence),
        first_iteration=longer.iterations[0],
        iteration=longer.iterations[-1],
        phase=longer.phase,
        pattern="bursts" if in_bursts else "single",
        causes=[*_profiling(case), *causes_in(longer.phase, this.causes)],
        changes=changes_in(longer.phase, this.changes),
    )


def _who(longer: Longer, in_bursts: bool) -> str:
    count, bursts = len(longer.iterations), len(longer.bursts)
    much = f"{number(sum(longer.excess_ns) / count / NS_PER_MS, 1)} ms longer on average"
    if not in_bursts:
        return f"{count} steps, at irregular intervals, take {much}"
    if bursts == 1:
        return f"{count} steps from {longer.iterations[0]} to {longer.iterations[-1]} take {much}"
    return f"{count} steps, in {bursts} bursts of some {round(count / bursts)}, take {much}"


@names_no_cause
@rule(
    needs_speed=True,
    limits={
        "jitter": Limit(
            1.2,
            "times",
            "ours: p95 of steps, each against the median of the 64 before; "
            "even steps stay within a tenth of it",
        ),
        "jitter_cost": Limit(0.01, "share", "ours: slow steps are worth a look from 1 % on"),
    },
    causes=[
        "other processes on the hosts",
        "a neighbour on the network or the file system",
        "batches of very different lengths",
    ],
    changes=[
        Change([], "look at what else runs on the hosts"),
        switch_on("--manual-gc", text="rule out garbage collection"),
        unless(
            Change(["--perf-breakdown"], "switch phases on to see in which one the slow steps are slow"),
            lambda case: case.options.perf_breakdown,
        ),
    ],
)
def jitter(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Slow steps, unless other findings cost more than half of what they took longer: in no phase and at no
    distance in particular.
    """
    slow = case.signals.slow_steps
    if case.explained_s > slow.excess_ns / NS_PER_S / 2:
        return None
    ratio = (slow.ratios.quantile(0.95) or 0) / PER_MILLE
    share = case.share_of_steps(max(0.0, slow.excess_ns / NS_PER_S - case.explained_s))
    if share is None or not this.exceeds(ratio, "jitter") or not this.exceeds(share, "jitter_cost"):
        return None
    title = (
        f"Steps are uneven: {slow.count} of {case.steps} take {number(SLOW_STEP.value, 1)} times the usual "
        f"or more, at irregular intervals{' and in no phase in particular' if case.anatomy.phases else ''}"
    )
    evidence = [
        this.broke("p95 of the steps against the median before each", ratio, "jitter"),
        this.broke("time above the usual", share, "jitter_cost"),
    ]
    return replace(slows(this, case, title, share, evidence), causes=[*_profiling(case), *this.causes])
