"""The report of traces: sums, the cost model, the lineage, and what slows the queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flagscale_perf.analysis.blocks import REPORT_VERSION
from flagscale_perf.analysis.rules import Finding
from flagscale_perf.trace.analysis import verdicts
from flagscale_perf.trace.analysis.lineage import Lineage, join
from flagscale_perf.trace.analysis.model import Model, fit
from flagscale_perf.trace.analysis.sides import Sides, sides_of
from flagscale_perf.trace.analysis.source import Traces
from flagscale_perf.trace.analysis.sums import JudgedOperations, Sums
from flagscale_perf.trace.records import Kind
from flagscale_perf.trace.sums import FunctionSums


@dataclass(frozen=True)
class TraceReport:
    """The whole report of traces.

    Attributes:
        traces: what was read.
        models: what an operation of each kind costs by its shape.
        lineage: of the samples; None of text, which has no indexes.
        findings: what holds the queue back.
        unjudged: what could not be judged, and why.
        sides: what generates and what trains; None where no samples go from one to the other.
    """

    traces: Traces
    models: Mapping[Kind, Model]
    lineage: Lineage | None
    findings: list[Finding] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)
    sides: Sides | None = None

    @property
    def sums(self) -> Sums:
        """Sums over calls and operations."""
        return self.traces.sums

    @property
    def began_ns(self) -> int | None:
        """When the first call began, else the first operation; None if times of day are unknown."""
        return self.sums.first_ns if self.sums.began_ns is None else self.sums.began_ns

    @property
    def wall_ns(self) -> int | None:
        """Time from there to the last end; None if times of day are unknown."""
        began = self.began_ns
        return None if began is None else self.sums.last_ns - began

    def as_dict(self) -> dict[str, Any]:
        """Its content as JSON-ready data."""
        total, get, compute, put = self.sums.overall()
        reading = self.traces.reading
        return {
            "report_version": REPORT_VERSION,
            "path": reading.path if reading else None,
            "title": self.traces.title,
            "state": self.traces.state or None,
            "file_remarks": reading.remarks if reading else [],
            "traces": {
                "count": self.sums.trace_count,
                "is_exact": self.sums.traces.is_exact,
                "calls_without_id": self.sums.without_id,
            },
            "calls": {
                "count": self.sums.calls,
                "total_ns": total,
                "get_ns": get,
                "compute_ns": compute,
                "put_ns": put,
            },
            "functions": {name: _function(one) for name, one in self.sums.functions.items()},
            "processes": [
                {"process": process, "function": name} | _function(one)
                for (process, name), one in self.sums.by_process.items()
            ],
            "operations": {kind.name.lower(): self._operation(kind) for kind in Kind},
            "waits": [
                {"process": process, "task": task} | waits.as_dict()
                for (process, task), waits in self.sums.waits.items()
            ],
            "rl": None if self.sides is None else self.sides.as_dict(),
            "lineage": None if self.lineage is None else self.lineage.as_dict(),
            "unended": self.traces.unended,
            "losses": self.traces.losses.as_dict(),
            "wall_ns": self.wall_ns,
            "thresholds": verdicts.RULES,
            "findings": [each.as_dict() for each in self.findings],
            "not_judged": self.unjudged,
            "events": self.traces.events,
            "complete_files": self.traces.complete,
        }

    def _operation(self, kind: Kind) -> dict[str, Any]:
        one, model = self.sums.operations[kind], self.models[kind]
        return {
            "total_ns": one.total.as_dict(),
            "bytes_per_s": one.speed.as_dict(),
            "size_bytes": one.size.as_dict(),
            "errors": dict(one.errors),
            "verdict": verdicts.of_speed(one.speed.percentile(0.5)),
            "bound": bound_of(one, model),
            "model": vars(model),
            "waterfall": [{"stage": name, "ns": ns, "share": share} for name, ns, share in one.waterfall()],
            "slowest_units": {name: spread.as_dict() for name, spread in one.units.items()},
        }


def bound_of(one: JudgedOperations, model: Model) -> str | None:
    """The cost that most of a usual operation's time is spent on; None without a model."""
    shape = one.shapes.usual()
    return model.bound(*shape.each) if model and shape is not None else None


def _function(one: FunctionSums) -> dict[str, Any]:
    return {
        "calls": one.calls,
        "stands_for": one.total.weight,
        "errors": dict(one.errors),
        "rows": one.rows,
        **{f"{name}_ns": getattr(one, name).as_dict() for name in ("total", "get", "compute", "put")},
        "queue_share": one.queue_share,
        "compute_share": one.compute_share,
        "verdict": verdicts.of_queue(one.queue_share),
    }


def report_of(traces: Traces) -> TraceReport:
    """The report without findings."""
    models = {kind: fit(traces.sums.operations[kind].shapes) for kind in Kind}
    if traces.transfers is None:
        return TraceReport(traces, models, None)
    lineage = join(traces.transfers)
    sides = sides_of(traces.transfers, lineage, traces.sums.waits)
    return TraceReport(traces, models, lineage, sides=sides)
