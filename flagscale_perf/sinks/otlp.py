"""Figures as OTLP metrics for a collector, under the names that Megatron-LM gives its own."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from flagscale_perf.sinks.base import Sink, SinkContext
from flagscale_perf.spine.figures import Rows
from flagscale_perf.spine.records import Record

MOST = 10_000  # rows that wait while the collector does not take them
BATCH = 512  # rows of a request at most
PERIOD_S = 5.0  # between two requests
TIMEOUT_S = 5.0  # of a request with its retries
END_S = 1.0  # at the end, for the last request
RANK = "nv.dl.rank"


class Row(NamedTuple):
    """Figures of one rank at one time.

    Attributes:
        rank: it.
        wall_ns: Unix time.
        values: name to value, in the unit that the name ends with.
    """

    rank: int
    wall_ns: int
    values: dict[str, float]


class OtlpSink(Sink):
    """Requests to the collector at `perf_otlp`, by OpenTelemetry's own exporter, on a thread of their own.

    What a collector does not take waits; where too much waits, the oldest is dropped and counted.
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
        log.addHandler(logging.NullHandler())
        self._url = str(context.options.perf_otlp)
        self._exporter: Any = OTLPMetricExporter(endpoint=self._url, timeout=TIMEOUT_S)
        self._requests = _Requests(context)
        self._context = context
        self._rows = Rows(context.presentation.table, context.header)
        self._waiting: deque[Row] = deque()
        self._now_wall_ns = context.header.start_wall_ns
        self._thread: threading.Thread | None = None
        self._sending: list[Row] = []  # the request under way
        self._sent_s = 0.0
        self._dropped, self._trouble = 0, ""

    def write(self, record: Record) -> None:
        """Rank 0's figures of an interval; those of all ranks where the record has them."""
        if self._rows.is_row(record):
            self._now_wall_ns = getattr(record, self._rows.table.time)
            self._waiting.append(Row(0, self._now_wall_ns, self._rows.otlp(record)))
        of_ranks = self._context.presentation.of_ranks
        for rank, values in of_ranks(record) if of_ranks else ():
            self._waiting.append(Row(rank, self._now_wall_ns, values))
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
            self._trouble = "" if end.name == "SUCCESS" else f"{self._url} has not taken a request"
        except Exception as error:  # of a library that promises none: the next request may do better
            self._trouble = f"{type(error).__name__}: {error}"
        self._sending = []
        if self._trouble:
            self._waiting.extendleft(reversed(batch))


class _Requests:
    """Makes what OpenTelemetry's exporter takes: a resource for each rank, a gauge for each name."""

    def __init__(self, context: SinkContext) -> None:
        from opentelemetry.sdk.metrics import export
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        header, name = context.header, context.header.instrument
        self._sdk: Any = export
        self._resource: Any = Resource
        self._scope = InstrumentationScope(f"flagscale_perf.{name}")
        self._facts = {
            "service.name": context.options.perf_run_name or name,
            "flagscale_perf.session": header.session_id,
        }
        self._of_rank_0 = {"host.name": header.host} if header.host else {}

    def of(self, rows: Sequence[Row]) -> Any:
        """A request of these rows."""
        by_rank: dict[int, dict[str, list[Any]]] = {}
        for row in rows:
            for name, value in row.values.items():
                point = self._sdk.NumberDataPoint({}, 0, row.wall_ns, value)
                by_rank.setdefault(row.rank, {}).setdefault(name, []).append(point)
        return self._sdk.MetricsData([self._of_rank(rank, points) for rank, points in by_rank.items()])

    def _of_rank(self, rank: int, by_name: dict[str, list[Any]]) -> Any:
        metrics = [
            self._sdk.Metric(name, "", "", self._sdk.Gauge(points)) for name, points in by_name.items()
        ]
        resource = self._resource(self._facts | {RANK: rank} | ({} if rank else self._of_rank_0))
        return self._sdk.ResourceMetrics(resource, [self._sdk.ScopeMetrics(self._scope, metrics, "")], "")
