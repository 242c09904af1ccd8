"""Rules for samples that come late: to a consumer that waits, from one process, or many steps old."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis.rules import Finding, consequence, rule
from flagscale_perf.spine.chance import CHANCE, binomial_tail
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S
from flagscale_perf.spine.limits import Limit
from flagscale_perf.trace.analysis.case import GAIN, WORTH, TraceCase, TraceRule
from flagscale_perf.trace.analysis.sums import Waits
from flagscale_perf.trace.analysis.transfers import title_of

_MIN_ANSWERED = 10  # ours: of a consumer with fewer nothing is said


@rule(
    limits={"waits": Limit(0.1, "share", "ours: of the wall time, of the process that waits longest")},
    causes=[
        "what makes its samples is slower than the consumer is",
        "it asks for more samples at once than are made in time",
    ],
    changes=[
        "give the functions that make its samples more processes; see which of them works longest",
        "where samples may be older: let producers be further ahead",
        "fewer samples at once, so that it begins with what is there",
    ],
)
def starvation(this: TraceRule, case: TraceCase) -> list[Finding]:
    """A consumer waits for samples that are not there yet."""
    wall_ns = case.report.wall_ns
    if not wall_ns:
        return []
    consumers: dict[str, list[tuple[str, Waits]]] = {}
    for (process, task), waits in case.report.sums.waits.items():
        if waits.answered >= _MIN_ANSWERED:
            consumers.setdefault(task, []).append((process, waits))
    found = []
    for task, processes in consumers.items():
        process, longest = max(processes, key=lambda each: each[1].waited_ns)
        share = longest.waited_ns / wall_ns
        if not this.exceeds(share, "waits"):
            continue
        words = (
            f"{process} waits, {longest.waited_ns / NS_PER_S:.3f} s for {longest.waited} of"
            f" {longest.answered} batches; {longest.unanswered} requests found too few samples"
        )
        title = f"{task} waits {100 * share:.1f} % of the time for samples"
        finding = replace(this.finding(title, [this.broke(words, share, "waits")], GAIN), phase=task)
        total_ns = sum(waits.waited_ns for _, waits in processes)
        slow = [(cause, (cause.cost_s or 0.0) * NS_PER_S / longest.waited_ns) for cause in case.explained_by]
        taken = case.takes(finding, total_ns, longest.waited_ns / total_ns)
        found.append(consequence(taken, [each for each in slow if each[0].phase != task]))
    return found


@rule(
    limits={
        "age": Limit(1.5, "", "ours: steps between a sample's first put and its use; one is asynchronous")
    },
    causes=[
        "producers are ahead of the last consumer: samples wait in the queue",
        "a slow function in between",
    ],
    changes=["let producers wait: fewer samples in flight, or a limit on how old they may be"],
)
def stale_samples(this: TraceRule, case: TraceCase) -> Finding | None:
    """The last consumer works on samples from many steps ago."""
    lineage = case.report.lineage
    age = None if lineage is None else lineage.last.mean_age
    if lineage is None or age is None or not this.exceeds(age, "age"):
        return None
    name = lineage.last.name
    waits = [
        (source, flow)
        for (source, target), flow in lineage.flows.items()
        if name in (target, title_of(target))
    ]
    source, flow = max(waits, key=lambda item: item[1].residence.mean or 0.0)
    stay = (flow.residence.mean or 0.0) / NS_PER_S
    longest = f"longest in the queue: what {source} puts, {stay:.3g} s on average"
    words = f"mean, at most {max(lineage.last.age)}; {longest}"
    ages = lineage.last.age
    old = sum(count for steps, count in ages.items() if steps > 1) / ages.total()
    risk = (
        f"no time, but freshness: {100 * old:.0f} % of what {name} learns from was begun two or more of its"
        " steps before, by weights as old at best"
    )
    evidence = [this.broke(words, age, "age")]
    found = this.finding(f"{name} uses samples that are {age:.1f} steps old", evidence, GAIN)
    return replace(found, risk=risk)


@rule(
    limits={
        "last": Limit(0.5, "share", "ours: of the batches with samples of several processes"),
        "chance": CHANCE,
        "worth": WORTH,
    },
    causes=["its samples take longer, or it has more of them"],
    changes=["look at this process: machine, length of its samples; spread them more evenly"],
)
def slow_producer(this: TraceRule, case: TraceCase) -> Finding | None:
    """Batches wait for the samples of one particular process."""
    lineage, wall = case.report.lineage, case.report.wall_ns
    if lineage is None or not lineage.holders or not wall:
        return None
    name, one = max(lineage.holders.items(), key=lambda item: item[1].held.total)
    processes = lineage.processes_per_get.mean or 2.0
    chance = binomial_tail(one.last, one.batches, 1 / max(2.0, processes)) * len(lineage.holders)
    share, held = one.last / one.batches, one.held.total
    if not this.exceeds(share, "last") or chance > this.limits["chance"].value:
        return None
    if not this.exceeds(held / wall, "worth"):
        return None
    mean = (one.held.mean or 0.0) / NS_PER_MS
    evidence = [
        this.broke(
            f"{one.last} of {one.batches} batches got its samples last, {mean:.3f} ms after the others",
            share,
            "last",
        ),
        this.broke("chance of that among equal processes", chance, "chance"),
        this.broke("time that batches were held up, of the wall time", held / wall, "worth"),
    ]
    finding = this.finding(f"{name} holds up the batches", evidence, GAIN)
    return replace(finding, cost_s=held / NS_PER_S, cost_share=held / wall)
