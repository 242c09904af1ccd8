"""A session of calls as its rules examine it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from flagscale_perf.analysis.rules import Case
from flagscale_perf.rpc.analysis.costs import Costs
from flagscale_perf.rpc.analysis.flow import gained
from flagscale_perf.rpc.analysis.report import CallsReport
from flagscale_perf.rpc.analysis.unexplained import Unexplained
from flagscale_perf.rpc.stages import STAGES, stage_times
from flagscale_perf.spine.averages import median

PLACE = {stage.name: place for place, stage in enumerate(STAGES)}


@dataclass(frozen=True)
class CallsCase(Case):
    """A session of calls as the rules examine it.

    Attributes:
        report: the calls.
        costs: what their bytes cost, by the calls themselves.
        beyond: what bytes do not explain of the wait, in a sample of `scale` times as many calls; None where
            the wait is apart from the server's time.
    """

    report: CallsReport
    costs: Costs
    beyond: Unexplained | None = None

    @cached_property
    def part(self) -> float:
        """Of what is saved in carrying calls, the part that the session is shorter by: all where they follow
        one another. Where they overlap, what others do meanwhile is no gain; that takes a replay.
        """
        report = self.report
        if report.wall_ns is None or report.overall.total_ns <= report.wall_ns:
            return 1.0
        part = gained(report.first)
        return 1.0 if part is None else min(1.0, max(0.0, part))

    def share(self, stage: str) -> float:
        """Share of the calls' time."""
        totals = self.report.overall
        return totals.stages_ns[PLACE[stage]] / totals.total_ns if totals.total_ns else 0.0

    def lasting(self, stage: str) -> float:
        """The share, or what it would be if each call had taken the median of its kind: whichever is less. A
        call that lost its CPU for a moment makes no finding of a short session.
        """
        kinds: dict[tuple[str, int, int], list[int]] = {}
        for call in self.report.sample:
            times = kinds.setdefault((call.method, call.status, call.moved_bytes.bit_length()), [])
            times.append(stage_times(call)[PLACE[stage]] or 0)
        usual_ns = sum(median(times) * len(times) for times in kinds.values()) * self.scale
        return min(self.share(stage), self.saved(usual_ns))

    @property
    def scale(self) -> float:
        """Calls for each of the sample."""
        return self.report.overall.calls / max(1, len(self.report.sample))

    @property
    def is_local(self) -> bool:
        """Whether the processes are known to share a machine and their calls do not use TCP."""
        return self.report.facts.transport in ("IPC", "INPROC")

    @property
    def is_shared(self) -> bool:
        """Whether large arrays already travel in shared memory."""
        return self.report.facts.payload == "shared"

    def saved(self, saved_ns: float) -> float:
        """The saving as a share of the calls' time."""
        whole = self.report.overall.total_ns
        return min(1.0, saved_ns / whole) if whole else 0.0
