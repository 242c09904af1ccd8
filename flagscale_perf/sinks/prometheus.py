"""Prometheus: a port to scrape, or a file for node_exporter. Both live in the writer process."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from flagscale_perf.options.values import parse_address
from flagscale_perf.sinks.base import Metric, Sink, SinkContext
from flagscale_perf.spine.files import replace_file
from flagscale_perf.spine.records import Record
from flagscale_perf.spine.units import printable

TEXTFILE_MODE = 0o644  # node_exporter runs as another user
_SESSION = re.compile(r'session_id="([^"]*)"')


class _Exposition:
    """The metrics as they were at the last `publish`, for the library to render on any thread."""

    def __init__(self, context: SinkContext, of_run: Mapping[str, str] = MappingProxyType({})) -> None:
        """`of_run`: labels of every series. Raises ImportError without the package prometheus_client."""
        import prometheus_client
        from prometheus_client import core

        self._library: Any = prometheus_client
        self._families: Any = core
        self._metrics = context.presentation.metrics(context.header)
        self._of_run = of_run
        self._published: list[Any] = []
        self.registry: Any = prometheus_client.CollectorRegistry()
        self.registry.register(self)

    def add(self, record: Record) -> None:
        """The next record of the session."""
        self._metrics.add(record)

    def publish(self) -> None:
        """Makes what was added so far the text that is collected."""
        self._published = [
            self._family(name, series) for name, series in self._metrics.values().items() if series
        ]

    def collect(self) -> Iterable[Any]:
        """The metrics that are published, as the library asks a collector for them."""
        return self._published

    def text(self) -> bytes:
        """The published metrics, in Prometheus' text format."""
        content: bytes = self._library.generate_latest(self.registry)
        return content

    def app(self) -> Any:
        """A WSGI application that serves them in the format that the client asks for."""
        return self._library.make_wsgi_app(self.registry)

    def _family(self, name: str, series: dict[tuple[str, ...], float]) -> Any:
        metric = self._metrics.table[name]
        of_run = {label: value for label, value in self._of_run.items() if label not in metric.labels}
        run, labels = tuple(of_run.values()), (*of_run, *metric.labels)
        if labels[-1:] == ("le",):
            return self._histogram(metric, labels[:-1], run, series)
        is_counter = name.endswith("_total")
        kind = self._families.CounterMetricFamily if is_counter else self._families.GaugeMetricFamily
        family = kind(metric.prefix + name, metric.help, labels=labels)
        for values, value in series.items():
            family.add_metric((*run, *values), value)
        return family

    def _histogram(
        self,
        metric: Metric,
        labels: Sequence[str],
        run: tuple[str, ...],
        series: dict[tuple[str, ...], float],
    ) -> Any:
        family = self._families.HistogramMetricFamily(metric.prefix + metric.name, metric.help, labels=labels)
        buckets: dict[tuple[str, ...], list[tuple[str, float]]] = {}
        for (*values, bound), value in series.items():
            if bound != "sum":
                buckets.setdefault(tuple(values), []).append((bound, value))
        for of, held in buckets.items():
            family.add_metric((*run, *of), buckets=held, sum_value=series[(*of, "sum")])
        return family


class PrometheusPortSink(Sink):
    """Serves `/metrics` as long as the session lives; asked for by `perf_prometheus_port`."""

    name: ClassVar[str] = "Prometheus port"
    cost: ClassVar[str] = (
        "no metrics to scrape; free the port or give another --perf-prometheus-port; retrying"
    )
    rebuilds: ClassVar[bool] = True
    option: ClassVar[str | None] = "perf_prometheus_port"

    def __init__(self, context: SinkContext) -> None:
        """Raises ImportError without the package prometheus_client."""
        if not context.may_serve:
            raise RuntimeError("no port is opened in the training process, and there is no writer process")
        self._host, self._port = parse_address(context.options.perf_prometheus_port or "")
        self._exposition = _Exposition(context)
        self._server: Any = None

    def write(self, record: Record) -> None:
        """Adds the record."""
        self._exposition.add(record)

    def flush(self) -> None:
        """Shows what has been added; opens the port if it is not open yet. Raises OSError."""
        self._exposition.publish()
        if self._server is None:
            # here: the modules of an HTTP server are loaded only where one is asked for
            from flagscale_perf.sinks.prometheus_server import MetricsServer

            try:
                self._server = MetricsServer(self._host, self._port, self._exposition.app())
            except OSError as error:
                raise OSError(error.errno, f"{self._host}:{self._port}: {error.strerror}") from None

    def close(self) -> None:
        """Gives the port back."""
        if self._server is not None:
            self._server.close()
            self._server = None


class PrometheusTextfileSink(Sink):
    """Replaces one file for node_exporter's textfile collector; asked for by `perf_prometheus_textfile`. Of
    two sessions that are given the same file, the one that began later has it.
    """

    name: ClassVar[str] = "Prometheus textfile"
    cost: ClassVar[str] = (
        "its metrics are out of date; make its directory writable or give another --perf-prometheus-textfile"
    )
    rebuilds: ClassVar[bool] = True
    option: ClassVar[str | None] = "perf_prometheus_textfile"

    def __init__(self, context: SinkContext) -> None:
        """Raises ImportError without the package prometheus_client."""
        self._path = Path(context.options.perf_prometheus_textfile or "")
        # node_exporter takes all files of a directory as one exposition, with one instance.
        self._session_id = context.header.session_id
        of_run = {"log_dir": printable(str(context.directory)), "session_id": self._session_id}
        self._exposition = _Exposition(context, of_run)
        self._is_stale, self._has_written, self._other = True, False, ""

    def write(self, record: Record) -> None:
        """Adds the record. Raises OSError once another session has taken the file."""
        if self._other:
            raise OSError(f"session {self._other} writes {self._path}, too")
        self._exposition.add(record)
        self._is_stale = True

    def flush(self) -> None:
        """Replaces the file if there is something new, and it is not another session's by now. Raises
        OSError.
        """
        self._other = ""
        if self._has_written and self._path.exists():
            found = _SESSION.search(self._path.read_text(errors="replace"))
            self._other = found[1] if found and found[1] != self._session_id else ""
        if self._is_stale and not self._other:
            self._exposition.publish()
            replace_file(self._path, self._exposition.text(), mode=TEXTFILE_MODE)
            self._is_stale, self._has_written = False, True
