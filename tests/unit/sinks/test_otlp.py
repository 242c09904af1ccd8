"""Metrics that a collector gets: by OpenTelemetry's own exporter, read by its own protocol's types."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs OpenTelemetry; `make test-trace` runs it where it is")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from flagscale_perf.sinks import otlp
from flagscale_perf.sinks.otlp import OtlpSink
from flagscale_perf.training.rank_records import RanksRecord
from tests.fakes import MS, make_context, make_header, make_interval, make_step

GB = 10**9
KNOWN = {
    "megatron.training.step_duration_ms": 100.0,
    "megatron.training.throughput_tflops": 5.0,
    "megatron.training.tokens_per_sec": 10240.0,
    "megatron.training.loss": 2.5,
    "megatron.training.grad_norm": 1.25,
    "megatron.training.learning_rate": 1e-4,
    "megatron.training.skipped_iters": 0.0,
    "megatron.training.memory_allocated_gb": 2.0,
}


class Collector:
    """What it has taken, and what it answers."""

    def __init__(self) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        self.code, self.url = 200, ""
        self.gate = threading.Event()
        self.gate.set()

    def rows(self) -> list[tuple[int, str, int, float]]:
        """Rank, name, time and value of each point."""
        return [
            (rank, metric.name, point.time_unix_nano, point.as_double)
            for request in self.requests
            for resource in request.resource_metrics
            for rank in [attributes(resource)["nv.dl.rank"]]
            for metric in resource.scope_metrics[0].metrics
            for point in metric.gauge.data_points
        ]


def attributes(resource: Any) -> dict[str, Any]:
    values = {each.key: each.value for each in resource.resource.attributes}
    return {key: getattr(value, value.WhichOneof("value")) for key, value in values.items()}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with serving(Collector()) as made:
        yield made


@contextmanager
def serving(collector: Collector, port: int = 0) -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.gate.wait()
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if collector.code == 200 and self.path == "/v1/metrics":
                collector.requests.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(collector.code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        collector.url = f"http://127.0.0.1:{server.server_address[1]}/v1/metrics"
        yield collector
        collector.gate.set()
        server.shutdown()
        thread.join()


def opened(url: str, directory: Path, said: list[str] | None = None) -> OtlpSink:
    complain = (said if said is not None else []).append
    header = make_header(perf_otlp=url, perf_run_name="7b")
    sink = OtlpSink.open(make_context(header, directory, print, may_serve=True, complain=complain))
    assert sink is not None
    return sink


def flushed(sink: OtlpSink) -> None:
    """One request from its beginning to its end. Raises OSError like a later flush."""
    sink._sent_s = 0.0
    with suppress(OSError):  # of the request before
        sink.flush()
    if sink._thread is not None:
        sink._thread.join()
    sink._sent_s = float("inf")
    sink.flush()


def test_an_interval_is_rank_0_s_figures_under_megatron_s_names(collector: Collector, tmp_path: Path) -> None:
    sink, interval = opened(collector.url, tmp_path), make_interval(10)
    for record in (make_step(10), interval):
        sink.write(record)
    flushed(sink)
    assert {name: value for _, name, _, value in collector.rows()} == pytest.approx(KNOWN)
    assert {(rank, at) for rank, _, at, _ in collector.rows()} == {(0, interval.end_wall_ns)}
    (request,) = collector.requests
    (resource,) = request.resource_metrics
    found = attributes(resource)
    assert (found["service.name"], found["flagscale_perf.session"]) == ("7b", "20240129_103000")
    assert resource.scope_metrics[0].scope.name == "flagscale_perf.training"
    sink.close()
    assert len(collector.requests) == 1


def test_every_rank_has_a_resource_of_its_own(collector: Collector, tmp_path: Path) -> None:
    sink, interval = opened(collector.url, tmp_path), make_interval(10)
    ranks = RanksRecord(1, 10, 1, [100 * MS, 120 * MS], [80 * MS, None], [20 * MS, 5 * MS], [None] * 2,
                        [2 * GB, 3 * GB], [], 0)  # fmt: skip
    for record in (interval, ranks):
        sink.write(record)
    flushed(sink)
    others = [row for row in collector.rows() if row[0] == 1]
    at = interval.end_wall_ns
    assert others == [
        (1, "megatron.training.step_duration_ms", at, 120.0),
        (1, "flagscale_perf.wait_ms", at, 5.0),
        (1, "flagscale_perf.memory_peak_gb", at, 3.0),
    ]
    own = {name: value for rank, name, _, value in collector.rows() if rank == 0}
    assert own["megatron.training.step_duration_ms"] == 100.0 and own["flagscale_perf.work_ms"] == 80.0
    sink.close()


def test_what_is_not_known_is_absent(collector: Collector, tmp_path: Path) -> None:
    sink = opened(collector.url, tmp_path)
    sink.write(make_interval(10, loss=None, grad_norm=None, learning_rate=None, memory_bytes=None))
    flushed(sink)
    missing = KNOWN.keys() - {name for _, name, *_ in collector.rows()}
    assert {name.rpartition(".")[2] for name in missing} == {
        "loss", "grad_norm", "learning_rate", "memory_allocated_gb"
    }  # fmt: skip
    sink.close()


def test_what_a_collector_refuses_waits_and_comes_later_in_its_order(
    collector: Collector, tmp_path: Path
) -> None:
    sink = opened(collector.url, tmp_path)
    collector.code = 400
    sink.write(make_interval(10))
    with pytest.raises(OSError, match="has not taken a request"):
        flushed(sink)
    collector.code = 200
    sink.write(make_interval(20, loss=2.0))
    flushed(sink)
    assert [value for _, name, _, value in collector.rows() if name.endswith(".loss")] == [2.5, 2.0]
    sink.close()


def test_of_what_waits_the_oldest_is_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "MOST", 4)
    monkeypatch.setattr(otlp, "TIMEOUT_S", 0.2)
    said: list[str] = []
    sink = opened("http://127.0.0.1:9/v1/metrics", tmp_path, said)
    for iteration in range(10, 110, 10):
        sink.write(make_interval(iteration))
    with pytest.raises(OSError, match="http://127.0.0.1:9/v1/metrics has not taken"):
        flushed(sink)
    sink.close()
    sink.close()
    assert said == ["flagscale_perf: OTLP: 10 rows were not taken by http://127.0.0.1:9/v1/metrics"]


def test_a_collector_that_does_not_answer_holds_up_neither_records_nor_the_end(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "END_S", 0.1)
    collector.gate.clear()
    sink = opened(collector.url, tmp_path)
    sink.write(make_interval(10))
    sink.flush()
    for iteration in range(20, 1000, 10):
        sink.write(make_interval(iteration))
        sink.flush()
    sink.close()
    assert sink._thread is not None and sink._thread.is_alive() and not collector.requests
    collector.gate.set()
    sink._thread.join()


def test_many_rows_go_in_several_requests(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "BATCH", 3)
    sink = opened(collector.url, tmp_path)
    for iteration in range(10, 80, 10):
        sink.write(make_interval(iteration))
    sink.close()
    counts = [
        len(request.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points)
        for request in collector.requests
    ]
    assert counts == [3, 3, 1]
