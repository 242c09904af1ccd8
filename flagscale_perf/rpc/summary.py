"""Sums up a session of calls as it goes: its summary, and Prometheus metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flagscale_perf.rpc.facts import RpcFacts
from flagscale_perf.rpc.figures import TABLE, method_name, status_name
from flagscale_perf.rpc.log import METHODS, PerformanceLogSink
from flagscale_perf.rpc.records import CallRecord, ServedRecord
from flagscale_perf.rpc.totals import CallTotals, Totals
from flagscale_perf.sinks.base import Metric, Presentation, Series
from flagscale_perf.sinks.csv import CsvSink
from flagscale_perf.sinks.prometheus import PrometheusPortSink, PrometheusTextfileSink
from flagscale_perf.sinks.summary import SummarySink
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.records import RUNNING, Record, RunEnd, RunHeader

SUMMARY_VERSION = 1


class RpcSummary:
    """Content of `perf_summary_<session>.json`."""

    def __init__(self, header: RunHeader) -> None:
        self._header = header
        self._totals = CallTotals()
        self._served = 0
        self._end: RunEnd | None = None

    def add(self, record: Record) -> None:
        """Adds the next record of the session."""
        if isinstance(record, CallRecord):
            self._totals.add(record)
        elif isinstance(record, ServedRecord):
            self._served += 1
        elif isinstance(record, RunEnd):
            self._end = record

    def text(self) -> str:
        """The summary so far, as JSON."""
        content = {
            "summary_version": SUMMARY_VERSION,
            "session": self._header.session_id,
            "state": RUNNING if self._end is None else self._end.reason,
            "records_lost": None if self._end is None else self._end.dropped,
            "facts": RpcFacts.of(self._header.facts).as_dict(),
            "methods_recorded": self._header.config.get(METHODS) or None,
            "overall": _totals(self._totals.overall),
            "methods": {name: _totals(each) for name, each in self._totals.methods.items()},
            "served": self._served,
        }
        return json.dumps(content, indent=1) + "\n"


def _totals(totals: Totals) -> dict[str, Any]:
    return totals.as_dict({f"{one.stage.name}_ns": one.took_ns for one in totals.stages()})


class RpcMetrics:
    """Counters; rates and means are left to the query."""

    table: Mapping[str, Metric] = {
        metric.name: metric
        for metric in (
            Metric("rpc_calls_total", "Calls that have ended.", ("method", "status")),
            Metric(
                "rpc_call_seconds_total",
                "Time by stage of the calls that tell it.",
                ("method", "stage"),
                NS_PER_S,
            ),
            Metric("rpc_told_calls_total", "Calls that tell the time of the stage.", ("method", "stage")),
            Metric("rpc_sent_bytes_total", "Bytes of arrays sent.", ("method",)),
            Metric("rpc_received_bytes_total", "Bytes of arrays received.", ("method",)),
        )
    }

    def __init__(self, header: RunHeader) -> None:
        self._totals = CallTotals()
        self._ended: dict[tuple[str, ...], float] = {}

    def add(self, record: Record) -> None:
        """Adds the next record of the session."""
        if isinstance(record, CallRecord):
            self._totals.add(record)
            key = (method_name(record.method), status_name(record.status))
            if key in self._ended or len(self._ended) < 8 * len(self._totals.methods):
                self._ended[key] = self._ended.get(key, 0) + 1

    def values(self) -> Series:
        """The current values of all metrics."""
        methods = {method_name(name): totals for name, totals in self._totals.methods.items()}
        stages = {
            (name, one.stage.name): one
            for name, totals in methods.items()
            for one in totals.stages()
            if one.took_ns is not None
        }
        return {
            "rpc_calls_total": dict(self._ended),
            "rpc_call_seconds_total": {key: (one.took_ns or 0) / NS_PER_S for key, one in stages.items()},
            "rpc_told_calls_total": {key: one.told for key, one in stages.items()},
            "rpc_sent_bytes_total": {(name,): totals.sent_bytes for name, totals in methods.items()},
            "rpc_received_bytes_total": {(name,): totals.received_bytes for name, totals in methods.items()},
        }


PRESENTATION = Presentation(
    "Calls",
    TABLE,
    lambda header: [],
    RpcSummary,
    RpcMetrics,
    views=(PerformanceLogSink, SummarySink, PrometheusPortSink, PrometheusTextfileSink, CsvSink),
)
