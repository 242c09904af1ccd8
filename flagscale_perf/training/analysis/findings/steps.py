"""Single steps that take longer than those around them."""

from __future__ import annotations

from flagscale_perf.analysis.rules import Change, Finding, Limit, rule
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.units import number, percent
from flagscale_perf.training.analysis.findings.advice import (
    Advice,
    double,
    switch_on,
    unless,
    written,
)
from flagscale_perf.training.analysis.findings.case import TrainingCase, TrainingRule, slows
from flagscale_perf.training.analysis.findings.signals import PER_MILLE, SLOW_STEP, SlowSteps


def _collect_together(case: TrainingCase) -> Change | None:
    """All ranks in the same iterations; less often where they do so already."""
    flags, interval = ["--manual-gc", "--manual-gc-interval"], case.number("manual_gc_interval")
    if not case.argument("manual_gc"):
        text = "collect at fixed iterations, on all ranks together, every 100 or more"
        return written(case, {flags[0]: True, flags[1]: 100}, text)
    if not interval:
        return None  # it never collects between steps
    return written(case, {flags[1]: int(max(100, 2 * interval))}, f"less often than every {interval:g} steps")


@rule(
    needs_speed=True,
    explains={"jitter"},
    limits={
        "gc_pauses": Limit(0.005, "share", "ours: regular pauses are worth a flag from half a percent on"),
        "gc_count": Limit(5, "", "ours: fewer pauses than this have no period"),
        "gc_spread": Limit(
            0.2,
            "share",
            "ours: half of the distances between the pauses differ no more than that from their median",
        ),
    },
    causes=[
        "Python collects garbage, on each rank at another time",
        "something else that the host does every so many steps",
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
def gc_pauses(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Slow steps at even distances."""
    slow = case.signals.slow_steps
    share, period = case.share_of_steps(slow.excess_ns / NS_PER_S), _period(slow)
    if slow.count < this.limits["gc_count"].value or share is None or period is None:
        return None
    distance, spread = period
    if not this.exceeds(share, "gc_pauses") or this.exceeds(spread, "gc_spread"):
        return None
    title = (
        f"About every {distance} steps one is slow, as when Python collects garbage: "
        f"{percent(share)} of the steps' time"
    )
    evidence = [
        this.broke("time of the slow steps above the usual", share, "gc_pauses"),
        this.broke("how many there are", slow.count, "gc_count"),
    ]
    return slows(this, case, title, share, evidence)


def _period(slow: SlowSteps) -> tuple[int, float] | None:
    """The median distance between slow steps, and by what share of it the quartiles differ; None where there
    is none, or where slow steps follow one another.
    """
    low, middle, high = (slow.distances.quantile(share) for share in (0.25, 0.5, 0.75))
    if low is None or middle is None or high is None or middle < 2:
        return None
    return middle, max(middle - low, high - middle) / middle


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
        "a neighbour on the network or the file system",
        "other processes on the hosts",
        "batches of very different lengths",
    ],
    changes=[
        switch_on("--manual-gc", text="rule out garbage collection"),
        double("--num-workers", "raise it, if the slow steps wait for data (see the phases)", 16, least=2),
        unless(
            Change(
                ["--perf-breakdown"],
                "if there are no phases: switch them on to see in which one the slow steps are slow",
            ),
            lambda case: case.options.perf_breakdown,
        ),
    ],
)
def jitter(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Slow steps, as far as no other finding explains their time."""
    slow = case.signals.slow_steps
    ratio = (slow.ratios.quantile(0.95) or 0) / PER_MILLE
    share = case.share_of_steps(max(0.0, slow.excess_ns / NS_PER_S - case.explained_s))
    if share is None or not this.exceeds(ratio, "jitter") or not this.exceeds(share, "jitter_cost"):
        return None
    title = (
        f"Steps are uneven: {slow.count} of {case.steps} take {number(SLOW_STEP.value, 1)} times the usual "
        "or more, at no even distance"
    )
    evidence = [
        this.broke("p95 of the steps against the median before each", ratio, "jitter"),
        this.broke("time above the usual", share, "jitter_cost"),
    ]
    return slows(this, case, title, share, evidence)
