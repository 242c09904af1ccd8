"""Rules for what slows the queue, each with the gain that a change would bring by this run's own
operations.
"""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis.rules import Change, Finding, change_of, consequence, find, names_no_cause, rule
from flagscale_perf.spine.chance import CHANCE, binomial_tail
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.limits import Limit
from flagscale_perf.trace.analysis import verdicts
from flagscale_perf.trace.analysis.case import (
    GAIN,
    MIN_OPERATIONS,
    WORTH,
    TraceCase,
    TraceRule,
    best_gain,
    held_up,
)
from flagscale_perf.trace.analysis.late_samples import slow_producer, stale_samples, starvation
from flagscale_perf.trace.analysis.remarks import remarks_of
from flagscale_perf.trace.analysis.report import TraceReport
from flagscale_perf.trace.figures import MIB, ONE_OF
from flagscale_perf.trace.spread import Spread

_MIN_CALLS = 10  # ours: of a function with fewer nothing is said
_SMALL = MIB  # bytes: what has fewer takes its time by its fixed cost, as far as nothing else is known


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _within(spread: Spread) -> str:
    within = spread.mean_within()
    return f" +- {within / NS_PER_MS:.3f} ms" if within else ""


@rule(
    limits={
        "share": Limit(0.4, "share", "ours: of what all functions work in the same time, by their medians"),
        "next": Limit(1.5, "times", "ours: as long as the function that works longest after it"),
    },
    causes=["its own work is slow: the queue only waits for it"],
    changes=["give this function more processes, or look into its own work: the queue is not the cause"],
    explains={"starvation"},
)
def slow_stage(this: TraceRule, case: TraceCase) -> Finding | None:
    """One function works much longer than the others. Medians, as the first calls include start-up."""
    busiest: dict[str, float] = {}
    for (_, name), one in case.report.sums.by_process.items():
        if one.compute.count < _MIN_CALLS:
            continue
        works = (one.compute.percentile(0.5) or 0.0) * one.compute.weight
        busiest[name] = max(busiest.get(name, 0.0), works)
    ordered = sorted(busiest.items(), key=lambda item: -item[1])
    if len(ordered) < 2 or not ordered[1][1]:
        return None
    (name, longest), (other, next_ns) = ordered[:2]
    share = longest / sum(busiest.values())
    if not this.exceeds(share, "share") or not this.exceeds(longest / next_ns, "next"):
        return None
    one = case.report.sums.functions[name]
    middle = (one.compute.percentile(0.5) or 0.0) / NS_PER_MS
    evidence = [
        this.broke(f"{name} computes, median {middle:.3g} ms a call{_within(one.compute)}", share, "share"),
        this.broke(f"as long as {other}", longest / next_ns, "next"),
    ]
    title = f"{name} is the slow stage: {_percent(share)} of all functions' compute time"
    return replace(case.takes(this.finding(title, evidence, GAIN), longest - next_ns), phase=name)


@names_no_cause
@rule(
    limits={"queue": Limit(verdicts.QUEUE_BAD, "share", verdicts.REQUIREMENT), "worth": WORTH},
    causes=["small batches: each operation has its fixed cost", "many fields and rows: each cell is decoded"],
    changes=[
        "see below what an operation costs here: more rows a call, or fewer fields and rows",
        Change(["num_data_storage_units"], "more storage units where bytes are the bound"),
    ],
)
def queue_overhead(this: TraceRule, case: TraceCase) -> list[Finding]:
    """Get and put take more than 30 % of a function's time."""
    found = []
    for name, one in case.report.sums.functions.items():
        share = one.queue_share
        if share is None or one.calls < _MIN_CALLS or not this.exceeds(share, "queue"):
            continue
        if not this.exceeds(one.queue / case.whole_ns, "worth"):
            continue
        get, _, put = one.parts()
        parts = f"get {_percent(get / one.total.total)}, put {_percent(put / one.total.total)}"
        words = f"{name}, {one.calls} calls: {parts}"
        title = f"{name} spends {_percent(share)} of its time in the queue"
        finding = this.finding(title, [this.broke(words, share, "queue")], GAIN)
        causes = case.holding(case.report.sums.held.get(name, {}), one.queue)
        found.append(consequence(case.takes(finding, one.queue, case.busiest_in(name)), causes))
    return found


@rule(
    limits={"part": Limit(0.5, "share", "ours: of an operation's time by the fitted model"), "worth": WORTH},
    causes=[],
    changes=[],
    explains={"low_throughput"},
)
def bound(this: TraceRule, case: TraceCase) -> list[Finding]:
    """What most of an operation's time is spent on, and what reducing it would gain."""
    found = []
    for kind, _, one in case.operations():
        model = case.report.models[kind]
        gain = best_gain(kind, one, model)
        if gain is None or not this.exceeds(gain.share, "part"):
            continue
        if not this.exceeds(gain.saved_ns / case.whole_ns, "worth"):
            continue
        shapes = f"{model.calls} operations of {model.shapes} shapes"
        fitted = f"fitted to {shapes}, median error {_percent(model.error)}"
        evidence = [
            this.broke(f"{gain.bound}, of {ONE_OF[kind]}'s time ({fitted})", gain.share, "part"),
            this.broke("saved by that, of all processes' time", gain.saved_ns / case.whole_ns, "worth"),
        ]
        title = f"Most of {ONE_OF[kind]} goes into its {gain.bound}: {gain.words}"
        finding = replace(this.finding(title, evidence, GAIN), changes=[*map(change_of, gain.changes)])
        causes = case.holding({(unit, kind): held.total for unit, held in one.held.items()}, gain.part_ns)
        found.append(consequence(case.takes(finding, gain.saved_ns, case.busiest_with(kind)), causes))
    return found


@rule(
    limits={
        "chance": CHANCE,
        "slower": Limit(1.5, "times", "ours: as long as for any other unit, by their medians"),
        "worth": WORTH,
    },
    causes=["its machine is busy, its network slow, or its part of the samples larger"],
    changes=[
        "look at this unit's machine and at TransferQueue's own storage metrics for it",
        Change(["num_data_storage_units"], "more units make each one's part smaller"),
    ],
    explains={"queue_overhead", "bound"},
)
def straggling_unit(this: TraceRule, case: TraceCase) -> list[Finding]:
    """Most operations wait longest for the same storage unit."""
    found = []
    for kind, name, one in case.operations():
        if not one.held:
            continue
        count = sum(spread.count for spread in one.held.values())
        unit, held = max(one.held.items(), key=lambda item: item[1].total)
        usual = max((spread.percentile(0.5) or 0.0) for other, spread in one.waits.items() if other != unit)
        chance = binomial_tail(held.count, count, 1 / len(one.waits)) * len(one.waits)
        middle = one.waits[unit].percentile(0.5) or 0.0
        factor = middle / usual if usual else 0.0
        saved = held.total
        if chance > this.limits["chance"].value or not this.exceeds(factor, "slower"):
            continue
        if not this.exceeds(saved / case.whole_ns, "worth"):
            continue
        words = (
            f"its median wait over that of the others, {middle / NS_PER_MS:.3g} / {usual / NS_PER_MS:.3g} ms"
        )
        evidence = [
            this.broke(f"{words}; {held.count} of {count} {name}s wait longest for it", factor, "slower"),
            this.broke("chance of that many among equal units", chance, "chance"),
            this.broke(
                "saved where it is like the others, of all processes' time", saved / case.whole_ns, "worth"
            ),
        ]
        finding = replace(this.finding(held_up(unit, kind), evidence, GAIN), phase="unit")
        found.append(case.takes(finding, saved, case.waited_share(unit, kind)))
    return found


@rule(
    limits={
        "tail": Limit(3.0, "times", "ours: p95 over p50, of operations of one shape"),
        "variation": Limit(0.5, "share", "ours: standard deviation over the mean"),
    },
    causes=["network or storage is not steady", "CPUs that others use, too"],
    changes=["see in the waterfall which stage has the long p95, and what else runs then"],
)
def fluctuation(this: TraceRule, case: TraceCase) -> list[Finding]:
    """The time of operations of one shape varies a lot."""
    found = []
    for kind, name, one in case.operations():
        shapes = max(one.shapes.kept.values(), key=lambda shape: shape.times.count, default=None)
        times = one.total if shapes is None else shapes.times
        middle, tail, variation = times.percentile(0.5), times.percentile(0.95), times.variation
        if times.count < MIN_OPERATIONS or not middle or tail is None or variation is None:
            continue
        if not (this.exceeds(tail / middle, "tail") and this.exceeds(variation, "variation")):
            continue
        words = f"{times.count} {name}s, p50 {middle / NS_PER_MS:.3f} ms, p95 {tail / NS_PER_MS:.3f} ms"
        evidence = [
            this.broke(f"p95 / p50 of {words}", tail / middle, "tail"),
            this.broke("their variation", variation, "variation"),
        ]
        over = max(0.0, (times.mean or 0.0) - middle) * one.total.weight
        finding = this.finding(f"The time of {ONE_OF[kind]} fluctuates", evidence, GAIN)
        found.append(case.takes(finding, over, case.busiest_with(kind)))
    return found


@rule(
    limits={"slow": Limit(0.5, "share", "ours: of the operations; the requirement says: for long")},
    causes=["network bandwidth", "a storage backend that is slow", "copies while messages are made"],
    changes=[
        "check what the network and the storage's machine can do",
        Change(["TQ_CLIENT_ZMQ_IO_THREADS"], "raise it where large batches go through TCP"),
        "another backend: MooncakeStore over RDMA, Yuanrong (ds_max_workers)",
    ],
)
def low_throughput(this: TraceRule, case: TraceCase) -> list[Finding]:
    """Most operations are below 100 MiB/s and bound by their bytes or, where that is not known, large."""
    found = []
    for kind, name, one in case.operations():
        share = one.slow / one.speed.weight if one.speed.weight else 0.0
        gain = best_gain(kind, one, case.report.models[kind])
        if not this.exceeds(share, "slow") or (gain is not None and gain.bound != "bytes"):
            continue
        if gain is None and (one.size.percentile(0.5) or 0.0) < _SMALL:
            continue
        middle = (one.speed.percentile(0.5) or 0.0) / MIB
        why = "" if gain is not None else "; whether bytes are the bound is not known"
        words = f"{name}s below 100 MiB/s, p50 {middle:.3g} MiB/s{why}"
        finding = this.finding(
            f"Throughput of {name}s is low for long", [this.broke(words, share, "slow")], GAIN
        )
        found.append(finding)
    return found


@rule(
    limits={"failed": Limit(0, "", "ours: a sound job has none")},
    causes=["see the errors' names, and the log of the process"],
    changes=["every call and operation that failed is kept whatever the sampling: look at those"],
)
def errors(this: TraceRule, case: TraceCase) -> Finding | None:
    """Calls or operations failed."""
    sums = case.report.sums
    failed = {name: one.errors for name, one in sums.functions.items() if one.errors}
    failed |= {kind.name.lower(): one.errors for kind, one in sums.operations.items() if one.errors}
    count = sum(sum(errors.values()) for errors in failed.values())
    if not count:
        return None
    words = "; ".join(
        f"{name}: {', '.join(f'{error} {number}' for error, number in errors.most_common(3))}"
        for name, errors in list(failed.items())[:5]
    )
    return this.finding(f"{count} calls and operations failed", [this.broke(words, count, "failed")], GAIN)


@rule(
    limits={"missing": Limit(0, "", "ours: one is enough to make a sum too low")},
    causes=[],
    changes=["see the remarks above: where the complete files are, and what to set"],
)
def missing(this: TraceRule, case: TraceCase) -> Finding | None:
    """Lines or records are missing, so that counts and sums are too low."""
    losses = case.report.traces.losses
    count = losses.repeated + losses.torn + losses.dropped + losses.lost
    if not this.exceeds(count, "missing"):
        return None
    words = "; ".join(remarks_of(case.report.traces)[:2])
    return this.finding(
        f"{count:,} lines or records are missing", [this.broke(words, count, "missing")], GAIN
    )


RULES: tuple[TraceRule, ...] = (
    *(slow_stage, starvation, queue_overhead, bound, straggling_unit, fluctuation),
    *(low_throughput, errors, stale_samples, slow_producer, missing),
)


def judge(report: TraceReport) -> TraceReport:
    """The report with its findings, the costliest first."""
    if not (report.sums.calls or report.sums.count or report.sums.waits):
        return report
    unjudged = [
        f"what holds a {kind.name.lower()}: {model.reason}"
        for kind, model in report.models.items()
        if model.reason and report.sums.operations[kind].total.count
    ]
    if report.traces.is_text:
        unjudged.append(
            "how long samples stay and which are stale: lines of text have no indexes; give the run file"
        )
    return replace(report, findings=find(RULES, TraceCase(report)), unjudged=unjudged)
