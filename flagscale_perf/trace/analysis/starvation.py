"""The rule for consumers that wait for samples."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis.rules import Change, Finding, Limit, rule
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.trace.analysis.case import GAIN, TraceCase, TraceRule
from flagscale_perf.trace.analysis.waits import Waits

_MIN_ANSWERED = 10  # ours: of a consumer with fewer nothing is said


@rule(
    limits={"waits": Limit(0.1, "share", "ours: of the wall time, of the process that waits longest")},
    causes=[
        "what makes its samples is slower than the consumer is",
        "it asks for more samples at once than are made in time",
    ],
    changes=[
        Change(
            [], "give the functions that make its samples more processes; see which of them works longest"
        ),
        Change([], "where samples may be older: let producers be further ahead"),
        Change([], "fewer samples at once, so that it begins with what is there"),
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
        found.append(case.takes(finding, total_ns, longest.waited_ns / total_ns))
    return found
