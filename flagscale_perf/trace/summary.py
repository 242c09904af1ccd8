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
from flagscale_perf.spine.records import Record, RunEnd, RunHeader
from flagscale_perf.trace.figures import KINDS, OPERATIONS
from flagscale_perf.trace.logs import LinesSink
from flagscale_perf.trace.totals import BUCKETS_S, CallTotals, Histogram, OperationTotals, TraceTotals

SUMMARY_VERSION = 1
RUNNING = "running"
QUANTILES = (0.5, 0.95, 0.99)


class TraceSummary:
    """`perf_summary_<session>.json`."""

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


def _operations(totals: OperationTotals) -> dict[str, Any]:
    return {
        "recorded": totals.recorded,
        "count": totals.count,
        "failed": totals.failed,
        "total_ns": totals.total_ns,
        **{f"{stage}_ns": took_ns for stage, took_ns in totals.stages_ns.items()},
        "size_bytes": totals.size_bytes,
        "rows": totals.rows,
        **_quantiles(totals.histogram),
    }


def _calls(totals: CallTotals) -> dict[str, Any]:
    return {
        "recorded": totals.recorded,
        "count": totals.count,
        "failed": totals.failed,
        "total_ns": totals.total_ns,
        "get_ns": totals.get_ns,
        "compute_ns": totals.compute_ns,
        "put_ns": totals.put_ns,
        **_quantiles(totals.histogram),
    }


def _quantiles(histogram: Histogram) -> dict[str, float | None]:
    return {f"p{quantile * 100:.0f}_s": histogram.quantile(quantile) for quantile in QUANTILES}


# Beside TransferQueue's own `tq_controller_` and `tq_storage_`.
_metric = partial(Metric, prefix="")


class TraceMetrics:
    """Counters and histograms; rates and quantiles are left to the query."""

    table: Mapping[str, Metric] = {
        metric.name: metric
        for metric in (
            _metric("tq_client_operations_total", "Puts and gets that have ended.", ("kind", "status")),
            _metric("tq_client_operation_seconds", "How long a put or get took.", ("kind", "le")),
            _metric("tq_client_stage_seconds_total", "Time of puts and gets by stage.", ("kind", "stage")),
            _metric("tq_client_bytes_total", "Bytes of the samples' values.", ("kind",)),
            _metric("tq_client_rows_total", "Samples put and got.", ("kind",)),
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
        kinds = {KINDS[kind]: totals for kind, totals in self._totals.operations.items()}
        functions = self._totals.functions
        return {
            "tq_client_operations_total": _ended(kinds),
            "tq_client_operation_seconds": _histograms(kinds),
            "tq_client_stage_seconds_total": {
                (kind, stage): took_ns / NS_PER_S
                for kind, totals in kinds.items()
                for stage, took_ns in totals.stages_ns.items()
            },
            "tq_client_bytes_total": {(kind,): totals.size_bytes for kind, totals in kinds.items()},
            "tq_client_rows_total": {(kind,): totals.rows for kind, totals in kinds.items()},
            "tq_client_calls_total": _ended(functions),
            "tq_client_call_seconds": _histograms(functions),
            "tq_client_call_stage_seconds_total": {
                (name, stage): took_ns / NS_PER_S
                for name, totals in functions.items()
                for stage, took_ns in totals.stages().items()
            },
            "tq_client_processes": {(): len(self._running)},
            "tq_client_lost_total": {(): self._lost},
        }


def _ended(of: Mapping[str, OperationTotals] | Mapping[str, CallTotals]) -> dict[tuple[str, ...], float]:
    series: dict[tuple[str, ...], float] = {}
    for name, totals in of.items():
        series[name, "ok"], series[name, "error"] = totals.count - totals.failed, totals.failed
    return series


def _histograms(
    of: Mapping[str, OperationTotals] | Mapping[str, CallTotals],
) -> dict[tuple[str, ...], float]:
    series: dict[tuple[str, ...], float] = {}
    for name, totals in of.items():
        below = totals.histogram.below(BUCKETS_S)
        for bound_s, count in zip((*map(str, BUCKETS_S), "+Inf"), below, strict=True):
            series[name, bound_s] = count
        series[name, "sum"] = totals.total_ns / NS_PER_S
    return series


PRESENTATION = Presentation(
    "Traced processes",
    OPERATIONS,
    lambda header: [],
    TraceSummary,
    TraceMetrics,
    views=(LinesSink, SummarySink, PrometheusPortSink, PrometheusTextfileSink, CsvSink),
)
