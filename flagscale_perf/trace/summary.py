"""Sums up a session of traced processes as it goes: its summary, and Prometheus metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from flagscale_perf.sinks.base import Metric, Presentation, Series
from flagscale_perf.sinks.csv import CsvSink
from flagscale_perf.sinks.prometheus import PrometheusPortSink, PrometheusTextfileSink
from flagscale_perf.sinks.summary import SummarySink
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.peers.records import ProcessRecord
from flagscale_perf.spine.records import RUNNING, Record, RunEnd, RunHeader
from flagscale_perf.trace.figures import KINDS, OPERATIONS
from flagscale_perf.trace.logs import LinesSink
from flagscale_perf.trace.sums import FunctionSums, OperationSums, TraceTotals

SUMMARY_VERSION = 1
QUANTILES = (0.5, 0.95, 0.99)
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class TraceSummary:
    """Content of `perf_summary_<session>.json`."""

    def __init__(self, header: RunHeader) -> None:
        self._header = header
        self._totals = TraceTotals()
        self._processes: dict[int, ProcessRecord] = {}
        self._end: RunEnd | None = None

    def add(self, record: Record) -> None:
        """Adds the next record of the session."""
        self._totals.add(record)
        if isinstance(record, ProcessRecord):
            self._processes[record.number] = record
        elif isinstance(record, RunEnd):
            self._end = record

    def text(self) -> str:
        """The summary so far."""
        totals = self._totals
        content = {
            "summary_version": SUMMARY_VERSION,
            "session": self._header.session_id,
            "state": RUNNING if self._end is None else self._end.reason,
            "records_lost": None if self._end is None else self._end.dropped,
            "facts": self._header.facts,
            "processes": [asdict(process) for process in self._processes.values()],
            "operations": {KINDS[kind]: _operations(each) for kind, each in totals.operations.items()},
            "functions": {name: _calls(each) for name, each in totals.functions.items()},
        }
        return json.dumps(content, indent=1) + "\n"


def _operations(sums: OperationSums) -> dict[str, Any]:
    stages = {f"{stage}_ns": took_ns for stage, took_ns, _ in sums.waterfall()}
    return _times(sums, stages | {"size_bytes": sums.size.total, "rows": sums.rows.total})


def _calls(sums: FunctionSums) -> dict[str, Any]:
    return _times(sums, {f"{stage}_ns": took_ns for stage, took_ns in _stages(sums).items()})


def _stages(sums: FunctionSums) -> dict[str, float]:
    return {"get": sums.get.total, "compute": sums.compute.total, "put": sums.put.total}


def _times(sums: OperationSums | FunctionSums, parts: Mapping[str, float]) -> dict[str, Any]:
    times = sums.total
    quantiles = {f"p{quantile * 100:.0f}_s": times.percentile(quantile) for quantile in QUANTILES}
    return {
        "recorded": times.count,
        "count": times.weight,
        "failed": sum(sums.errors.values()),
        "total_ns": times.total,
        **parts,
        **{name: None if took_ns is None else took_ns / NS_PER_S for name, took_ns in quantiles.items()},
    }


# Beside TransferQueue's own `tq_controller_` and `tq_storage_`.
_metric = partial(Metric, prefix="")


class TraceMetrics:
    """Counters and histograms; rates and quantiles are left to the query."""

    table: Mapping[str, Metric] = {
        metric.name: metric
        for metric in (
            _metric("tq_client_operations_total", "Puts and gets that have ended.", ("kind", "status")),
            _metric("tq_client_operation_seconds", "How long a put or get took.", ("kind", "le")),
            _metric("tq_client_stage_seconds_total", "Time of successful operations.", ("kind", "stage")),
            _metric("tq_client_bytes_total", "Bytes of values in successful operations.", ("kind",)),
            _metric("tq_client_rows_total", "Samples in successful operations.", ("kind",)),
            _metric("tq_client_calls_total", "Calls of functions that have ended.", ("function", "status")),
            _metric("tq_client_call_seconds", "How long a call took.", ("function", "le")),
            _metric("tq_client_call_stage_seconds_total", "Time of calls by stage.", ("function", "stage")),
            _metric("tq_client_processes", "Traced processes that have not ended."),
            _metric("tq_client_lost_total", "Calls and operations of which no record has come."),
        )
    }

    def __init__(self, header: RunHeader) -> None:
        self._totals = TraceTotals()
        self._running: set[int] = set()
        self._lost = 0

    def add(self, record: Record) -> None:
        """Adds the next record of the session."""
        self._totals.add(record)
        if isinstance(record, ProcessRecord):
            if record.end is None:
                self._running.add(record.number)
            else:
                self._running.discard(record.number)
                self._lost += record.lost or 0

    def values(self) -> Series:
        """The current values of all metrics."""
        kinds = {KINDS[kind]: sums for kind, sums in self._totals.operations.items()}
        functions = self._totals.functions
        return {
            "tq_client_operations_total": _ended(kinds),
            "tq_client_operation_seconds": _histograms(kinds),
            "tq_client_stage_seconds_total": {
                (kind, stage): took_ns / NS_PER_S
                for kind, sums in kinds.items()
                for stage, took_ns, _ in sums.waterfall()
            },
            "tq_client_bytes_total": {(kind,): sums.size.total for kind, sums in kinds.items()},
            "tq_client_rows_total": {(kind,): sums.rows.total for kind, sums in kinds.items()},
            "tq_client_calls_total": _ended(functions),
            "tq_client_call_seconds": _histograms(functions),
            "tq_client_call_stage_seconds_total": {
                (name, stage): took_ns / NS_PER_S
                for name, sums in functions.items()
                for stage, took_ns in _stages(sums).items()
            },
            "tq_client_processes": {(): len(self._running)},
            "tq_client_lost_total": {(): self._lost},
        }


_Summed = Mapping[str, OperationSums] | Mapping[str, FunctionSums]


def _ended(of: _Summed) -> dict[tuple[str, ...], float]:
    series: dict[tuple[str, ...], float] = {}
    for name, sums in of.items():
        failed = sum(sums.errors.values())
        series[name, "ok"], series[name, "error"] = sums.total.weight - failed, failed
    return series


def _histograms(of: _Summed) -> dict[tuple[str, ...], float]:
    bounds_ns = [bound_s * NS_PER_S for bound_s in BUCKETS_S]
    series: dict[tuple[str, ...], float] = {}
    for name, sums in of.items():
        series |= {
            (name, str(bound_s)): count
            for bound_s, count in zip(BUCKETS_S, sums.total.below(bounds_ns), strict=True)
        }
        series[name, "+Inf"] = sums.total.weight
        series[name, "sum"] = sums.total.total / NS_PER_S
    return series


PRESENTATION = Presentation(
    "Traced processes",
    OPERATIONS,
    lambda header: [],
    TraceSummary,
    TraceMetrics,
    views=(LinesSink, SummarySink, PrometheusPortSink, PrometheusTextfileSink, CsvSink),
)
