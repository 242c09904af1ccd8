"""Megatron-LM's own OpenTelemetry layer beside ours: what each sends of one training, what each costs.

    ENVIRONMENT/bin/python benchmarks/megatron_telemetry.py MEGATRON_LM [--turns 200]

MEGATRON_LM is a tree that has `megatron/core/telemetry`. The environment has Python 3.13, which nemo-lens
asks for: `pip install -e '.[trace]' torch==2.13.0 'nemo-lens[sdk]' einops pybind11 regex tensorboard psutil`.

First a tiny GPT by its pretrain_gpt.py with both on and one collector for both: each metric, theirs and ours,
from the second log point on (theirs counts the first iteration, ours leaves it out as a warm-up).

Then CPU time of the training thread, both in one process in turns: the spans that a step of that training had
with their preset `per_step`, opened again by nemo-lens in the same order and nesting; their metrics of a log
point; and our hooks with phases, over the same loop without a monitor (`bench_hot_path.py`). Steps last
microseconds, so that work of others on the machine meets few of them; the figure is the median over the
turns of a turn's median. What their export takes on its thread in the training process is not in it. Exits 1
where a value differs by more than its bar, or a step of ours costs more than a tenth of theirs.
"""

from __future__ import annotations

import argparse
import gzip
import multiprocessing
import os
import random
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import metadata
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.bench_hot_path import loop  # noqa: E402
from benchmarks.provenance import head  # noqa: E402
from tests.processes import flagscale as fs  # noqa: E402

OURS, THEIRS = "flagscale_perf.training", "nemo.lens"
POINTS = 8  # log points of the run whose values are compared
# Largest relative difference: of times their clock and ours, of the others the digits that the host prints.
BARS = {"loss": 1e-6, "grad_norm": 1e-3, "learning_rate": 1e-6}
TIME_BAR, SHARE_BAR = 0.02, 0.1
TURN = 25  # steps: their spans are fewer than the exporter's thread takes at once
STEP_SPAN = "megatron.train.iteration"
LOOP, OURS_ON = "the loop alone", "ours with phases, a step"


def collect(port: Connection, kept: Path) -> None:
    """Takes requests until it is killed; keeps their bodies, each in a file."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            number = len(list(kept.iterdir()))
            (kept / f"{number:06}.{self.path.rpartition('/')[2]}").write_bytes(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        port.send(server.server_address[1])
        server.serve_forever()


def sent_to(url: str) -> dict[str, str]:
    """Their variables; every 20 ms, so that a gauge's value is sent before the next one."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_METRIC_EXPORT_INTERVAL": "20",
    }


def train(tree: Path, scratch: Path, url: str, *more: str) -> None:
    """One process under the launcher, both layers on."""
    words = ["-m", "flagscale_perf.launch", str(tree / "pretrain_gpt.py"), *fs.TINY, "--num-workers", "0"]
    words += ["--eval-interval", "1000000", "--log-throughput", "--otel-enabled", "--enable-perf-monitor"]
    words += ["--perf-log-dir", "perf", "--perf-otlp", f"{url}/v1/metrics", *more]
    worker = {
        **fs.only_rank(),
        "PYTHONPATH": os.pathsep.join((str(tree), str(ROOT))),
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "OMP_NUM_THREADS": "1",
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
    }
    process = subprocess.run(
        [sys.executable, *words],
        cwd=scratch,
        env=os.environ | worker | sent_to(url),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if process.returncode:
        raise SystemExit(f"the training run failed (exit {process.returncode}):\n{process.stdout[-3000:]}")


def sent(kept: Path, scope: str) -> dict[str, list[float]]:
    """Metric -> its different values in their order; of a histogram what each adds to the sum."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    points: dict[str, dict[float, None]] = defaultdict(dict)
    for path in sorted(kept.glob("*.metrics")):
        for resource in ExportMetricsServiceRequest.FromString(path.read_bytes()).resource_metrics:
            for part in resource.scope_metrics:
                for metric in part.metrics if part.scope.name == scope else ():
                    points[metric.name].update(dict.fromkeys(_values(metric)))
    return {name: added(values) if name.endswith("_ms") else list(values) for name, values in points.items()}


def _values(metric: Any) -> Iterable[float]:
    kind = metric.WhichOneof("data")
    for point in getattr(metric, kind).data_points:
        yield point.sum if kind == "histogram" else getattr(point, point.WhichOneof("value"))


def added(sums: Iterable[float]) -> list[float]:
    """What each adds to the one before."""
    values = list(sums)
    return [now - before for before, now in zip([0.0, *values], values, strict=False)]


def compared(ours: dict[str, list[float]], theirs: dict[str, list[float]]) -> list[str]:
    """Prints a line for each metric of either; returns what differs by more than its bar."""
    missed = []
    print(f"{'metric':38} {'theirs':>14} {'ours':>14} {'largest difference':>20}")
    for name in sorted(ours.keys() | theirs.keys()):
        last = POINTS - 1  # the same log points of both: theirs has one more, of the first iteration
        pairs = list(zip(theirs.get(name, ())[-last:], ours.get(name, ())[-last:], strict=False))
        texts = [f"{values[-1]:.6g}" if values else "-" for values in map(list, zip(*pairs, strict=True))]
        if len(pairs) < last:
            said = [", ".join(f"{value:g}" for value in each.get(name, ())[-1:]) for each in (theirs, ours)]
            print(f"{name:38} {said[0] or '-':>14} {said[1] or '-':>14} {'not compared':>20}")
            continue
        bar = BARS.get(name.rpartition(".")[2], TIME_BAR)
        worst = max(abs(a - b) / max(abs(a), abs(b), 1e-300) for a, b in pairs)
        print(f"{name:38} {texts[0]:>14} {texts[1]:>14} {worst:>19.2%} ")
        if worst > bar:
            missed.append(f"{name}: differs by {worst:.2%}, bar {bar:.2%}")
    return missed


class Span(NamedTuple):
    """One that was sent."""

    start_ns: int
    name: str
    attributes: dict[str, Any]
    inner: list[Span]


def spans_of_a_step(kept: Path) -> list[Span]:
    """The spans of the last step but one, as they lie in one another: from its start to the next one's."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    spans = [
        span
        for path in kept.glob("*.traces")
        for resource in ExportTraceServiceRequest.FromString(path.read_bytes()).resource_spans
        for part in resource.scope_spans
        for span in part.spans
    ]
    *_, first, end = sorted(span.start_time_unix_nano for span in spans if span.name == STEP_SPAN)
    within = [span for span in spans if first <= span.start_time_unix_nano < end]
    made = {
        span.span_id: Span(
            span.start_time_unix_nano,
            span.name,
            {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes},
            [],
        )
        for span in sorted(within, key=lambda span: span.start_time_unix_nano)
    }
    outer = [made[span.span_id] for span in within if span.parent_span_id not in made]
    for span in within:
        if span.parent_span_id in made:
            made[span.parent_span_id].inner.append(made[span.span_id])
    for each in made.values():
        each.inner.sort(key=lambda span: span.start_ns)
    return sorted(outer, key=lambda span: span.start_ns)


def opened_again(spans: Sequence[Span], tracer: Any) -> None:
    """Opens and closes them."""
    from nemo.lens.helpers import managed_span

    for span in spans:
        with managed_span("step", span.name, tracer=tracer, **span.attributes):
            opened_again(span.inner, tracer)


def their_steps(tree: Path, spans: Sequence[Span]) -> tuple[dict[str, Callable[[], Any]], Any]:
    """Their step and their log point, exporting as in the training; and their telemetry."""
    from nemo.lens import NemoLensConfig, setup_telemetry

    telemetry = setup_telemetry(NemoLensConfig(enabled=True, span_groups="step"))
    path = tree / "megatron/core/telemetry/training_metrics.py"
    record = runpy.run_path(str(path))["record_training_metrics"]
    figures = ["step_duration_ms", "loss", "throughput_tflops", "grad_norm", "learning_rate"]
    values = dict.fromkeys([*figures, "tokens_per_sec", "memory_allocated_gb"], 1.5)
    steps = {
        "theirs, spans of a step": lambda: opened_again(spans, telemetry.tracer),
        "theirs, a log point": lambda: record(telemetry.meter, **values),
    }
    return steps, telemetry


def cost(tree: Path, spans: Sequence[Span], turns: int, scratch: Path) -> list[str]:
    """Prints a line for each; returns what missed the bar."""
    from opentelemetry import trace

    arms = {}
    for name, monitor in ((LOOP, "none"), (OURS_ON, "phases")):
        (scratch / monitor).mkdir()
        arms[name] = loop(scratch / monitor, monitor, timers=True)
    theirs, telemetry = their_steps(tree, spans)
    provider: Any = trace.get_tracer_provider()
    steps = theirs | {name: arm.step for name, arm in arms.items()}
    medians: dict[str, list[float]] = {name: [] for name in steps}
    order = list(steps)
    for _ in range(turns):
        random.shuffle(order)
        for name in order:
            times = []
            for _ in range(TURN):
                start_ns = time.thread_time_ns()
                steps[name]()
                times.append(time.thread_time_ns() - start_ns)
            medians[name].append(statistics.median(times) / 1e3)
            provider.force_flush()
    telemetry.shutdown()
    for arm in arms.values():
        arm.close()
    medians[OURS_ON] = [on - off for on, off in zip(medians[OURS_ON], medians.pop(LOOP), strict=True)]
    print(f"{'us of CPU on the training thread':34} {'median':>8} {'quartiles of the turns':>24}")
    for name, values in medians.items():
        low, middle, high = statistics.quantiles(values, n=4)
        print(f"{name:34} {middle:8.1f} {f'{low:.1f} to {high:.1f}':>24}")
    share = statistics.median(medians[OURS_ON]) / statistics.median(medians["theirs, spans of a step"])
    print(f"ours over theirs, a step: {share:.3f}, bar {SHARE_BAR}; {turns} turns of {TURN} steps each")
    return [f"ours costs {share:.2f} of theirs, bar {SHARE_BAR}"] if share > SHARE_BAR else []


def names(spans: Sequence[Span]) -> list[str]:
    """Of all, in their order."""
    return [name for span in spans for name in (span.name, *names(span.inner))]


def main() -> int:
    """Prints both tables; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tree", type=Path, help="Megatron-LM with megatron/core/telemetry")
    parser.add_argument("--turns", type=int, default=200, help="of each in the second part")
    given = parser.parse_args()
    random.seed(0)
    print(head("spine", "training/recording", "hooks.py", "sinks/otlp.py", "hosts"))
    versions = ", ".join(
        f"{name} {metadata.version(name)}" for name in ("nemo-lens", "opentelemetry-sdk", "torch")
    )
    print(f"theirs   {versions}")
    receiving, sending = multiprocessing.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as place:
        scratch, kept = Path(place), Path(place) / "kept"
        kept.mkdir()
        collector = multiprocessing.Process(target=collect, args=(sending, kept), daemon=True)
        collector.start()
        url = f"http://127.0.0.1:{receiving.recv()}"
        every = ["--log-interval", "10", "--perf-log-interval", "10", "--train-iters", str(10 * POINTS)]
        train(given.tree.absolute(), scratch, url, *every, "--otel-span-groups", "per_step")
        missed = compared(sent(kept, OURS), sent(kept, THEIRS))
        spans = spans_of_a_step(kept)
        print(f"a step of theirs has {len(names(spans))} spans: {', '.join(names(spans))}")
        os.environ |= sent_to(url)
        missed += cost(given.tree, spans, given.turns, scratch)
        collector.kill()
    for line in missed:
        print(f"missed   {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
