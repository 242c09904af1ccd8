"""What the rules examine, and what a change is worth to the whole run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from flagscale_perf.analysis.rules import Case, Finding, Rule
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.trace.analysis.report import TraceReport
from flagscale_perf.trace.analysis.sums import OperationSums
from flagscale_perf.trace.records import Kind

GAIN = "samples in the same time"
MIN_OPERATIONS = 30  # ours: of fewer nothing is said


@dataclass(frozen=True)
class TraceCase(Case):
    """A report, as the rules see it."""

    report: TraceReport

    @property
    def whole_ns(self) -> float:
        """The time that shares refer to: that of all calls, or of all operations if there are no calls."""
        calls = self.report.sums.overall()[0]
        return calls or sum(one.total.total for one in self.report.sums.operations.values())

    def operations(self) -> Iterator[tuple[Kind, str, OperationSums]]:
        """The kinds with enough operations to judge."""
        for kind, one in self.report.sums.operations.items():
            if one.total.count >= MIN_OPERATIONS:
                yield kind, kind.name.lower(), one

    def busiest_in(self, function: str) -> float:
        """The share that the process with most of it has of a function's time."""
        calls = self.report.sums.by_process
        times = [one.total.total for (_, name), one in calls.items() if name == function]
        return max(times) / sum(times) if sum(times) else 1.0

    def busiest_with(self, kind: Kind) -> float:
        """The share that the process with most of it has of the time of operations of a kind."""
        sums = self.report.sums
        times = [one.total for (_, other), one in sums.operations_by.items() if other is kind]
        return max(times) / sum(times) if sum(times) else 1.0

    def takes(self, finding: Finding, saved_ns: float, busiest: float = 1.0) -> Finding:
        """The finding with its cost, which is of all processes, and its gain: processes work at the same
        time, so the wall time gets shorter by what the busiest one is saved, at most. Text has no wall time;
        there it is the time of all calls.
        """
        wall_ns = self.report.wall_ns
        whole_ns, less_ns = (self.whole_ns, saved_ns) if wall_ns is None else (wall_ns, saved_ns * busiest)
        left_ns = whole_ns - less_ns
        return replace(finding, cost_s=saved_ns / NS_PER_S, gain=less_ns / left_ns if left_ns > 0 else None)


TraceRule = Rule[TraceCase]
