"""Figures as OTLP metrics for a collector, as Megatron-LM declares its own."""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from flagscale_perf.sinks.base import Sink, SinkContext
from flagscale_perf.spine.figures import OtlpMetric, Rows
from flagscale_perf.spine.records import Record

MOST = 10_000  # rows that wait while the collector does not take them
BATCH = 512  # rows of a request at most
PERIOD_S = 5.0  # between two requests
TIMEOUT_S = 5.0  # of a request with its retries
END_S = 1.0  # at the end, for the last request
RANK = "nv.dl.rank"
# Upper ends of a histogram's buckets where nobody chooses them (OpenTelemetry's specification of its SDK).
BOUNDS = (0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1e3, 2.5e3, 5e3, 7.5e3, 1e4)
NOT_TAKEN_EVER = re.compile(r"code: (400|413)\b")  # as the exporter logs it: the request itself is at fault


class Distribution(NamedTuple):
    """Values since the session's start.

    Attributes:
        buckets: how many are in each; the last is above all bounds.
    """

    number: int
    total: float
    least: float
    most: float
    buckets: tuple[int, ...]

    def with_one(self, value: float) -> Distribution:
        """And this one."""
        buckets = list(self.buckets)
        buckets[bisect_left(BOUNDS, value)] += 1
        return Distribution(
            self.number + 1, self.total + value, min(self.least, value), max(self.most, value), tuple(buckets)
        )


NONE_YET = Distribution(0, 0.0, math.inf, -math.inf, (0,) * (len(BOUNDS) + 1))


class Row(NamedTuple):
    """Figures of one rank at one time.

    Attributes:
        rank: it.
        wall_ns: Unix time.
        values: a gauge's value, a sum's or a histogram's since the session's start.
    """

    rank: int
    wall_ns: int
    values: dict[OtlpMetric, float | Distribution]


class _Totals:
    """Rows of records: a sum or a histogram has what all rows before had, those that were dropped, too."""

    def __init__(self, context: SinkContext) -> None:
        self._figures = Rows(context.presentation.table, context.header)
        self._of_ranks = context.presentation.of_ranks
        self._now_wall_ns = context.header.start_wall_ns
        self._since_start: dict[tuple[int, str], float | Distribution] = {}

    def of(self, record: Record) -> Iterator[Row]:
        """Rank 0's figures of an interval; those of all ranks where the record has them."""
        if self._figures.is_row(record):
            self._now_wall_ns = getattr(record, self._figures.table.time)
            yield self._row(0, self._figures.otlp(record))
        for rank, values in self._of_ranks(record) if self._of_ranks else ():
            yield self._row(rank, values)

    def _row(self, rank: int, values: Mapping[OtlpMetric, float]) -> Row:
        totals = {metric: self._total(rank, metric, value) for metric, value in values.items()}
        return Row(rank, self._now_wall_ns, totals)

    def _total(self, rank: int, metric: OtlpMetric, value: float) -> float | Distribution:
        if metric.kind == "gauge":
            return value
        before = self._since_start.get((rank, metric.name), NONE_YET if metric.kind == "histogram" else 0)
        total = before.with_one(value) if isinstance(before, Distribution) else before + value
        self._since_start[rank, metric.name] = total
        return total


class OtlpSink(Sink):
    """Requests to the collector at `perf_otlp`, by OpenTelemetry's own exporter, on a thread of their own.

    What a collector does not take waits; where too much waits, the oldest is dropped and counted, as is a
    request that the collector calls malformed or too large: it would never take that one.
    """

    name: ClassVar[str] = "OTLP"
    cost: ClassVar[str] = "no new figures at the collector of --perf-otlp; the run file has them all"
    option: ClassVar[str | None] = "perf_otlp"

    def __init__(self, context: SinkContext) -> None:
        """Raises ImportError without the package opentelemetry-exporter-otlp-proto-http, RuntimeError where
        this is the process that trains.
        """
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        if not context.may_serve:
            raise RuntimeError("no thread sends from the training process, and there is no writer process")
        log = logging.getLogger("opentelemetry")  # the sink says what fails, once
        log.propagate = False
        self._said = _LastLine()
        log.addHandler(self._said)
        self._url = str(context.options.perf_otlp)
        self._exporter: Any = OTLPMetricExporter(endpoint=self._url, timeout=TIMEOUT_S)
        self._requests = _Requests(context)
        self._context = context
        self._rows = _Totals(context)
        self._waiting: deque[Row] = deque()
        self._thread: threading.Thread | None = None
        self._sending: list[Row] = []  # the request under way
        self._sent_s = 0.0
        self._dropped, self._trouble = 0, ""

    def write(self, record: Record) -> None:
        """Takes in its rows; where too many wait the oldest is dropped."""
        self._waiting.extend(self._rows.of(record))
        while len(self._waiting) > MOST:
            self._waiting.popleft()
            self._dropped += 1

    def flush(self) -> None:
        """Begins a request unless one is under way. Raises OSError where the last one has failed."""
        if not self._is_sending() and time.monotonic() - self._sent_s >= PERIOD_S:
            self._send()
        if self._trouble:
            raise OSError(self._trouble)

    def close(self) -> None:
        """Sends what waits, as far as that takes no longer than `END_S`; says what was not taken."""
        until = time.monotonic() + END_S
        while not self._trouble and (self._is_sending() or self._send()) and time.monotonic() < until:
            time.sleep(0.01)
        lost, self._dropped = self._dropped + len(self._waiting) + len(self._sending), 0
        self._waiting.clear()
        self._sending = []
        if lost:
            self._context.complain(f"flagscale_perf: OTLP: {lost} rows were not taken by {self._url}")

    def _is_sending(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _send(self) -> bool:
        """Whether there was something to send."""
        batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
        self._sending, self._sent_s = batch, time.monotonic()
        if batch:
            self._thread = threading.Thread(
                target=self._export, args=(batch,), name="flagscale_perf otlp", daemon=True
            )
            self._thread.start()
        return bool(batch)

    def _export(self, batch: Sequence[Row]) -> None:
        try:
            end = self._exporter.export(self._requests.of(batch))
            said = f"{self._url} has not taken a request: {self._said.text}"
            self._trouble = "" if end.name == "SUCCESS" else said
        except Exception as error:  # of a library that promises none: the next request may do better
            self._trouble = f"{type(error).__name__}: {error}"
        self._sending = []
        if NOT_TAKEN_EVER.search(self._trouble):
            self._dropped += len(batch)
        elif self._trouble:
            self._waiting.extendleft(reversed(batch))


class _LastLine(logging.Handler):
    """Keeps what the exporter has logged last: why a request was not taken."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps it."""
        self.text = record.getMessage()


class _Requests:
    """Makes what OpenTelemetry's exporter takes: a resource for each rank, a metric for each name."""

    def __init__(self, context: SinkContext) -> None:
        from opentelemetry.sdk.metrics import export
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        header, name = context.header, context.header.instrument
        self._sdk: Any = export
        self._resource: Any = Resource
        self._scope = InstrumentationScope(f"flagscale_perf.{name}")
        self._start_ns, self._session = header.start_wall_ns, header.session_id
        self._facts = {
            "service.name": context.options.perf_run_name or name,
            "flagscale_perf.session": header.session_id,
        }
        self._of_rank_0 = {"host.name": header.host} if header.host else {}

    def of(self, rows: Sequence[Row]) -> Any:
        """A request of these rows."""
        by_rank: dict[int, dict[OtlpMetric, list[Any]]] = {}
        for row in rows:
            for metric, value in row.values.items():
                by_rank.setdefault(row.rank, {}).setdefault(metric, []).append(self._point(row, value))
        return self._sdk.MetricsData([self._of_rank(rank, points) for rank, points in by_rank.items()])

    def _point(self, row: Row, value: float | Distribution) -> Any:
        at: tuple[Any, ...] = ({}, self._start_ns, row.wall_ns)
        if isinstance(value, Distribution):
            number, total, least, most, buckets = value
            return self._sdk.HistogramDataPoint(*at, number, total, buckets, BOUNDS, least, most)
        return self._sdk.NumberDataPoint(*at, value)

    def _of_rank(self, rank: int, by_metric: Mapping[OtlpMetric, list[Any]]) -> Any:
        metrics = [
            self._sdk.Metric(metric.name, "", metric.unit, self._data(metric, points))
            for metric, points in by_metric.items()
        ]
        # Prometheus has no other label of a resource than this identity and the service's name.
        own = {RANK: rank, "service.instance.id": f"{self._session}-rank{rank}"}
        resource = self._resource(self._facts | own | ({} if rank else self._of_rank_0))
        return self._sdk.ResourceMetrics(resource, [self._sdk.ScopeMetrics(self._scope, metrics, "")], "")

    def _data(self, metric: OtlpMetric, points: list[Any]) -> Any:
        if metric.kind == "gauge":
            return self._sdk.Gauge(points)
        since_start = self._sdk.AggregationTemporality.CUMULATIVE
        if metric.kind == "sum":
            return self._sdk.Sum(points, since_start, is_monotonic=True)
        return self._sdk.Histogram(points, since_start)
