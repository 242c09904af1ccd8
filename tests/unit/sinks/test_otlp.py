"""Metrics that a collector gets: by OpenTelemetry's own exporter, read by its own protocol's types."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
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

GIB = 2**30
KNOWN = {
    "megatron.training.throughput_tflops": 5.0,
    "megatron.training.tokens_per_sec": 10240.0,
    "megatron.training.loss": 2.5,
    "megatron.training.grad_norm": 1.25,
    "megatron.training.learning_rate": 1e-4,
    "megatron.training.memory_allocated_gb": 3e9 / GIB,
}


class Collector:
    """What it has taken, and what it answers."""

    def __init__(self) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        self.code, self.url = 200, ""
        self.gate = threading.Event()
        self.gate.set()

    def metrics(self) -> Iterator[tuple[int, Any]]:
        """Each with the rank of its resource."""
        for request in self.requests:
            for resource in request.resource_metrics:
                rank = attributes(resource)["nv.dl.rank"]
                yield from ((rank, metric) for metric in resource.scope_metrics[0].metrics)

    def rows(self) -> list[tuple[int, str, int, float]]:
        """Rank, name, time and value of each point of a gauge."""
        return [
            (rank, metric.name, point.time_unix_nano, point.as_double)
            for rank, metric in self.metrics()
            for point in metric.gauge.data_points
        ]

    def durations(self, rank: int) -> list[tuple[int, float]]:
        """How many steps' durations each point has, and their sum."""
        return [
            (point.count, point.sum)
            for of, metric in self.metrics()
            for point in metric.histogram.data_points
            if of == rank
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
    assert found["service.instance.id"] == "20240129_103000-rank0"
    assert resource.scope_metrics[0].scope.name == "flagscale_perf.training"
    sink.close()
    assert len(collector.requests) == 1


def test_durations_are_a_histogram_and_skipped_steps_a_counter_since_the_start(
    collector: Collector, tmp_path: Path
) -> None:
    sink = opened(collector.url, tmp_path)
    sink.write(make_interval(10))
    flushed(sink)
    sink.write(make_interval(20, iteration_ns=3000 * MS, skipped_iterations=2))
    flushed(sink)
    found = [metric for _, metric in collector.metrics() if metric.WhichOneof("data") != "gauge"]
    assert [(metric.name, metric.unit) for metric in found] == 2 * [
        ("megatron.training.step_duration_ms", "ms"),
        ("megatron.training.skipped_iters", ""),
    ]
    first, last = found[0].histogram, found[2].histogram
    assert first.aggregation_temporality == last.aggregation_temporality == 2  # cumulative
    (before,), (point,) = first.data_points, last.data_points
    assert before.start_time_unix_nano == point.start_time_unix_nano == make_header().start_wall_ns
    assert (before.count, before.sum, before.min, before.max) == (1, 100.0, 100.0, 100.0)
    assert (point.count, point.sum, point.min, point.max) == (2, 400.0, 100.0, 300.0)
    filled = dict(zip(point.explicit_bounds, point.bucket_counts, strict=False))
    assert {bound for bound, count in filled.items() if count} == {100.0, 500.0}
    skipped = [metric.sum for metric in (found[1], found[3])]
    assert all(each.is_monotonic and each.aggregation_temporality == 2 for each in skipped)
    assert [each.data_points[0].as_int for each in skipped] == [0, 2]
    sink.close()


def test_every_rank_has_a_resource_of_its_own(collector: Collector, tmp_path: Path) -> None:
    sink, interval = opened(collector.url, tmp_path), make_interval(10)
    ranks = RanksRecord(1, 10, 1, [100 * MS, 120 * MS], [80 * MS, None], [20 * MS, 5 * MS], [None] * 2,
                        [GIB, 2 * GIB], [], 0)  # fmt: skip
    for record in (interval, ranks):
        sink.write(record)
    flushed(sink)
    others = [row for row in collector.rows() if row[0] == 1]
    at = interval.end_wall_ns
    assert others == [
        (1, "flagscale_perf.wait_ms", at, 5.0),
        (1, "megatron.training.memory_allocated_gb", at, 2.0),
    ]
    assert collector.durations(1) == [(1, 120.0)]
    own = [(name, value) for rank, name, _, value in collector.rows() if rank == 0]
    assert ("flagscale_perf.work_ms", 80.0) in own
    assert [value for name, value in own if name.endswith("memory_allocated_gb")] == [3e9 / GIB]
    assert collector.durations(0) == [(1, 100.0)]
    instances = [attributes(each)["service.instance.id"] for each in collector.requests[0].resource_metrics]
    assert instances == ["20240129_103000-rank0", "20240129_103000-rank1"]
    sink.close()


def test_what_is_not_known_is_absent(collector: Collector, tmp_path: Path) -> None:
    sink = opened(collector.url, tmp_path)
    sink.write(make_interval(10, loss=None, grad_norm=None, learning_rate=None, memory_peak_bytes=None))
    flushed(sink)
    missing = KNOWN.keys() - {name for _, name, *_ in collector.rows()}
    assert {name.rpartition(".")[2] for name in missing} == {
        "loss", "grad_norm", "learning_rate", "memory_allocated_gb"
    }  # fmt: skip
    sink.close()


def test_what_a_collector_cannot_take_now_waits_and_comes_later_in_its_order(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "TIMEOUT_S", 0.2)
    sink = opened(collector.url, tmp_path)
    collector.code = 503
    sink.write(make_interval(10))
    with pytest.raises(OSError, match="has not taken a request: Failed to export metrics batch"):
        flushed(sink)
    collector.code = 200
    sink.write(make_interval(20, loss=2.0))
    flushed(sink)
    assert [value for _, name, _, value in collector.rows() if name.endswith(".loss")] == [2.5, 2.0]
    sink.close()


def test_a_request_that_is_never_taken_is_dropped_and_holds_up_no_other(
    collector: Collector, tmp_path: Path
) -> None:
    said: list[str] = []
    sink = opened(collector.url, tmp_path, said)
    collector.code = 400
    sink.write(make_interval(10))
    with pytest.raises(OSError, match="code: 400, reason: Bad Request"):
        flushed(sink)
    collector.code = 200
    sink.write(make_interval(20, loss=2.0))
    flushed(sink)
    assert [value for _, name, _, value in collector.rows() if name.endswith(".loss")] == [2.0]
    assert collector.durations(0) == [(2, 200.0)]
    sink.close()
    assert said == [f"flagscale_perf: OTLP: 1 rows were not taken by {collector.url}"]


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


@contextmanager
def stored(directory: Path, port: int) -> Iterator[str]:
    """Address of a VictoriaMetrics, a store that takes OTLP and keeps what Prometheus would call it."""
    words = ["-opentelemetry.usePrometheusNaming", "-retentionPeriod=100y", f"-storageDataPath={directory}"]
    process = subprocess.Popen(
        ["victoria-metrics", f"-httpListenAddr=127.0.0.1:{port}", *words], stderr=subprocess.DEVNULL
    )
    try:
        while process.poll() is None:
            with suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health").close()
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def series(store: str) -> dict[tuple[str, str, str], list[float]]:
    """Name, rank and bucket to the values that the store has, by their time."""
    urllib.request.urlopen(f"{store}/internal/force_flush").close()
    query = urllib.parse.urlencode({"match[]": '{__name__=~".+"}'})
    with urllib.request.urlopen(f"{store}/api/v1/export?{query}") as answer:
        lines = [json.loads(line) for line in answer]
    found = {}
    for line in lines:
        of, points = line["metric"], sorted(zip(line["timestamps"], line["values"], strict=True))
        found[of["__name__"], of["nv_dl_rank"], of.get("le", "")] = [value for _, value in points]
    return found


@pytest.fixture
def free_port() -> int:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        return int(server.server_address[1])


def test_a_real_store_has_what_megatron_s_own_dashboard_asks_for(
    tmp_path: Path, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which("victoria-metrics"):
        pytest.skip("needs victoria-metrics 1.92 or newer")
    monkeypatch.setattr(otlp, "TIMEOUT_S", 0.5)
    said: list[str] = []
    start = make_header().start_wall_ns
    with stored(tmp_path / "data", free_port) as store:
        sink = opened(f"{store}/opentelemetry/v1/metrics", tmp_path, said)
        sink.write(make_interval(10, end_wall_ns=start + 10 * 10**9))
        sink.write(RanksRecord(1, 10, 1, [100 * MS, 120 * MS], [None] * 2, [None] * 2, [None] * 2,
                               [None, GIB], [], 0))  # fmt: skip
        flushed(sink)
    sink.write(make_interval(20, end_wall_ns=start + 20 * 10**9, loss=2.0, skipped_iterations=3))
    with pytest.raises(OSError, match="has not taken a request"):
        flushed(sink)
    with stored(tmp_path / "data", free_port) as store:
        sink.write(make_interval(30, end_wall_ns=start + 30 * 10**9, loss=1.5))
        flushed(sink)
        found = series(store)
    sink.close()
    assert found["megatron_training_loss", "0", ""] == [2.5, 2.0, 1.5]
    assert found["megatron_training_skipped_iters_total", "0", ""] == [0, 3, 3]
    assert found["megatron_training_step_duration_ms_milliseconds_count", "0", ""] == [1, 2, 3]
    assert found["megatron_training_step_duration_ms_milliseconds_sum", "0", ""] == [100, 200, 300]
    assert found["megatron_training_step_duration_ms_milliseconds_sum", "1", ""] == [120]
    assert found["megatron_training_step_duration_ms_milliseconds_bucket", "0", "100"] == [1, 2, 3]
    assert found["megatron_training_memory_allocated_gb", "1", ""] == [1]
    assert not said
