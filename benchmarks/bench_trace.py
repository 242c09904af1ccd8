"""What tracing costs puts, gets and functions of a real TransferQueue, beside what else could be written.

    .venv_trace/bin/python benchmarks/bench_trace.py [--rounds 300]

In each round every arm does the same once, in another order: a put and a get of 64 rows with 4 fields, of
64 KB and of 1 MB, and a function behind verl's `tqbridge` that does nothing itself, which takes about 10 ms.
The arm `off again` is `off` a second time: what it differs by is noise. "Wall" is the median of an arm's time
over that of `off` in the same round, with the interval that 95 % of the medians of resamples lie in. "Self"
is the time between the arm's outermost and TransferQueue's own code, where the operation runs: that of `off`
is taken off, as it is the clock's. What is measured of the stages inside of TransferQueue's own code counts
to the wall alone.

The arms: `off` is wrapped and disabled; `TRACE` and `DETAIL` are as their variables switch them on, with the
real writer; `logging` writes two lines an operation, and eight a function, to a file; `OpenTelemetry` makes a
span, for its batch processor and an exporter that keeps nothing. At last the analyser reads a log of a
million lines, and one of a quarter of it. Exits 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import logging
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.provenance import head  # noqa: E402

os.environ |= {"TQ_NUM_THREADS": "2", "RAY_DEDUP_LOGS": "0", "PYTHONPATH": str(ROOT)}

import ray  # noqa: E402
import torch  # noqa: E402
import transfer_queue  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult  # noqa: E402
from tensordict import TensorDict  # noqa: E402
from transfer_queue import KVBatchMeta  # noqa: E402
from transfer_queue.client import AsyncTransferQueueClient as Client  # noqa: E402
from verl.utils import transferqueue_utils as verl_bridge  # noqa: E402

from flagscale_perf.hosts.transfer_queue.install import install  # noqa: E402
from flagscale_perf.trace import tracer as tracing  # noqa: E402
from flagscale_perf.trace.options import TraceOptions  # noqa: E402
from flagscale_perf.trace.task import job_of  # noqa: E402
from flagscale_perf.writer.membership import Membership  # noqa: E402

RESAMPLES, WARM_UP = 2000, 20
ROWS, FIELDS = 64, 4
SIZES = {"64 KB": 64 << 10, "1 MB": 1 << 20}
FUNCTION = "a function behind tqbridge"
OFF, AGAIN, TRACE, BOTH, LOGGING, OTEL = (
    "off",
    "off again",
    "TRACE",
    "TRACE+DETAIL",
    "logging",
    "OpenTelemetry",
)
ARMS = (OFF, AGAIN, TRACE, BOTH, LOGGING, OTEL)
LINES = 1_000_000
STAGES = (
    "FUNCTION_START",
    "GET_START",
    "GET_END",
    "COMPUTE_START",
    "COMPUTE_END",
    "PUT_START",
    "PUT_END",
    "FUNCTION_END",
)
TRACE_BAR, DETAIL_BAR, FUNCTION_BAR = 0.2, 0.4, 1.0  # per cent
# Runs a script, and says at the end how much memory it took at most, in kB (`ru_maxrss` is its parent's).
_PEAK = """
import re, runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1], file=sys.stderr)
"""
LINES_BAR, MEMORY_BAR_MB = 500_000, 20.0

Method = Callable[..., Awaitable[Any]]
clock = time.perf_counter_ns


class Arms:
    """Switches between the arms, and keeps how long the code around TransferQueue's own took.

    Attributes:
        self_ns: of the operations since it was last set to 0.
    """

    def __init__(self, directory: Path) -> None:
        self.self_ns = 0
        self._log = logging.getLogger("bench_trace")
        self._log.propagate = False
        self._log.setLevel(logging.INFO)
        self._log.addHandler(logging.FileHandler(directory / "lines.log"))
        self._provider = TracerProvider()
        self._provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
        self._spans = self._provider.get_tracer("bench_trace")
        inner = {name: self._inside(getattr(Client, name)) for name in ("async_put", "async_get_data")}
        for name, method in inner.items():
            setattr(Client, name, method)
        options = TraceOptions(trace=True, detail=True, directory=directory / "trace")
        self._membership = Membership.join(job_of(options), "bench_trace")
        plain_bridge = verl_bridge.tqbridge
        self.installation = install(options, self._membership.put)
        self._tracers = {
            TRACE: tracing.Tracer(
                TraceOptions(trace=True, detail=False, directory=directory), self._membership.put
            ),
            BOTH: tracing.active,
        }
        ours = {name: getattr(Client, name) for name in inner}
        if any(ours[name] is method for name, method in inner.items()):
            raise SystemExit("the client's operations are not traced here: there is nothing to measure")
        methods = {OFF: ours, AGAIN: ours, TRACE: ours, BOTH: ours}
        methods[LOGGING] = {name: self._logged(method) for name, method in inner.items()}
        methods[OTEL] = {name: self._spanned(method) for name, method in inner.items()}
        self._methods = {
            arm: {name: self._outside(method) for name, method in each.items()}
            for arm, each in methods.items()
        }
        bridged, plain = verl_bridge.tqbridge()(_work), plain_bridge()(_work)
        self._functions = dict.fromkeys((OFF, AGAIN, TRACE, BOTH), bridged)
        self._functions |= {LOGGING: self._logged_call(plain), OTEL: self._spanned_call(plain)}

    def choose(self, arm: str) -> Callable[..., Any]:
        """From now on it is this one. Returns the function behind the bridge."""
        tracing.active = self._tracers.get(arm)
        for name, method in self._methods[arm].items():
            setattr(Client, name, method)
        return self._functions[arm]

    def close(self) -> None:
        """Takes everything back."""
        self.installation.undo()
        self._membership.end("completed")
        self._provider.shutdown()

    def _inside(self, method: Method) -> Method:
        @functools.wraps(method)  # what takes other arguments than the client's own is not traced
        async def timed(client: Any, *args: Any, **kwargs: Any) -> Any:
            start_ns = clock()
            try:
                return await method(client, *args, **kwargs)
            finally:
                self.self_ns -= clock() - start_ns

        return timed

    def _outside(self, method: Method) -> Method:
        async def timed(client: Any, *args: Any, **kwargs: Any) -> Any:
            start_ns = clock()
            try:
                return await method(client, *args, **kwargs)
            finally:
                self.self_ns += clock() - start_ns

        return timed

    def _logged(self, method: Method) -> Method:
        async def logged(client: Any, *args: Any, **kwargs: Any) -> Any:
            self._log.info("[TQ-DETAIL] trace_id=%s | stage=%s", "N/A", "TQ_CLIENT_START")
            start_ns = clock()
            result = await method(client, *args, **kwargs)
            took_s = (clock() - start_ns) / 1e9
            self._log.info(
                "[TQ-DETAIL] trace_id=%s | stage=%s | duration=%.6fs", "N/A", "TQ_CLIENT_END", took_s
            )
            return result

        return logged

    def _spanned(self, method: Method) -> Method:
        async def spanned(client: Any, *args: Any, **kwargs: Any) -> Any:
            with self._spans.start_as_current_span("operation") as span:
                result = await method(client, *args, **kwargs)
                span.set_attribute("tq.rows", ROWS)
                return result

        return spanned

    def _logged_call(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def logged(*args: Any) -> Any:
            for stage in STAGES[:4]:
                self._log.info("[TQ-TRACE] trace_id=%s | func=%s | stage=%s", "N/A", "work", stage)
            result = function(*args)
            for stage in STAGES[4:]:
                self._log.info(
                    "[TQ-TRACE] trace_id=%s | func=%s | stage=%s | duration=%.6fs", "N/A", "work", stage, 0
                )
            return result

        return logged

    def _spanned_call(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def spanned(*args: Any) -> Any:
            with self._spans.start_as_current_span("work"):
                return function(*args)

        return spanned


class _Nowhere(SpanExporter):
    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def _work(batch: TensorDict) -> TensorDict:
    """All of its time is the queue's."""
    return TensorDict({"result": torch.zeros(ROWS, 16)}, batch_size=ROWS)


def batch_of(size_bytes: int) -> TensorDict:
    """64 rows of 4 fields, of so many bytes."""
    columns = size_bytes // (ROWS * FIELDS * 4)
    return TensorDict({f"field_{n}": torch.rand(ROWS, columns) for n in range(FIELDS)}, batch_size=ROWS)


async def put_and_get(client: Any, data: TensorDict, meta: Any) -> int:
    """Nanoseconds of both."""
    start_ns = clock()
    await client.async_put(data=data, metadata=meta)
    await client.async_get_data(meta)
    return clock() - start_ns


def measure(arms: Arms, rounds: int) -> dict[str, dict[str, list[tuple[int, int]]]]:
    """What was done -> arm -> of each round its nanoseconds and those of them that are the arm's own."""
    found: dict[str, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    client = transfer_queue.get_client()
    data, metas, keys = {}, {}, [str(row) for row in range(ROWS)]
    for name, size_bytes in SIZES.items():
        data[name] = batch_of(size_bytes)
        transfer_queue.kv_batch_put(keys, name, data[name])
        metas[name] = client.kv_retrieve_meta(keys=keys, partition_id=name, create=False)
    loop = asyncio.new_event_loop()
    for number in range(WARM_UP + rounds):
        for arm in random.sample(ARMS, len(ARMS)):
            function = arms.choose(arm)
            for name in SIZES:
                arms.self_ns = 0
                took_ns = loop.run_until_complete(put_and_get(client, data[name], metas[name]))
                if number >= WARM_UP:
                    found[name][arm].append((took_ns, arms.self_ns))
            batch = KVBatchMeta(keys, [{} for _ in keys], "64 KB", ["field_0"], {})
            start_ns = clock()
            function(batch)
            if number >= WARM_UP:
                found[FUNCTION][arm].append((clock() - start_ns, 0))
    loop.close()
    return found


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % of the medians of resamples lie in it."""
    medians = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES)]


def show(found: dict[str, dict[str, list[tuple[int, int]]]]) -> dict[tuple[str, str], tuple[float, float]]:
    """Prints the tables; returns wall and self of each, as shares of the time of `off` in per cent."""
    shares = {}
    for what, by_arm in found.items():
        base = by_arm[OFF]
        base_ns = statistics.median(took for took, _ in base)
        clock_ns = statistics.median(own for _, own in base)
        print(f"\n{what}: {base_ns / 1e6:.2f} ms where it is off; {len(base)} rounds")
        print(f"{'':16}{'wall':>8} {'95 % interval':>18} {'self us':>9} {'self %':>8}")
        for arm in ARMS:
            ratios = [took / off for (took, _), (off, _) in zip(by_arm[arm], base, strict=True)]
            low, high = interval(ratios)
            wall = statistics.median(ratios)
            own_ns = statistics.median(own for _, own in by_arm[arm]) - clock_ns
            own = "" if what == FUNCTION else f"{own_ns / 1e3 / 2:9.1f} {100 * own_ns / base_ns:7.2f}%"
            print(f"{arm:16}{wall:8.4f} {f'[{low:.4f}, {high:.4f}]':>18} {own}")
            shares[what, arm] = (100 * (wall - 1), 100 * own_ns / base_ns)
    return shares


def analysed(directory: Path, lines: int) -> tuple[float, float]:
    """Lines a second of the analyser, and the megabytes it takes, reading a log of so many lines."""
    log = directory / f"{lines}.log"
    with log.open("w") as file:
        for number in range(lines // len(STAGES)):
            ends = f"duration=0.001000s | timestamp={1.7e9 + number / 100:.6f} | pid=7 | number={number + 1}"
            for stage in STAGES:
                last = (
                    "total_duration=0.010000s | get_ratio=10.00% | compute_ratio=80.00% | put_ratio=10.00% | "
                )
                more = (last if stage == "FUNCTION_END" else "") + ends
                file.write(f"[TQ-TRACE] trace_id=id{number} | func=work | stage={stage} | {more}\n")
    start_s = time.perf_counter()
    words = [sys.executable, "-c", _PEAK, str(ROOT / "scripts/analyze_tq_logs.py"), str(log)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return lines / (time.perf_counter() - start_s), int(done.stderr.splitlines()[-1]) / 1e3


def held_to_bars(
    shares: dict[tuple[str, str], tuple[float, float]], analyser: tuple[float, float, float]
) -> int:
    """Prints each figure beside its bar; 1 if one is missed."""
    speed, small_mb, large_mb = analyser
    rows = (
        ("TRACE, self % of 64 KB operations", shares["64 KB", TRACE][1], TRACE_BAR, False),
        ("TRACE+DETAIL, self % of 64 KB operations", shares["64 KB", BOTH][1], DETAIL_BAR, False),
        ("TRACE+DETAIL, wall % of a function", shares[FUNCTION, BOTH][0], FUNCTION_BAR, False),
        ("analyser, lines/s", speed, LINES_BAR, True),
        ("analyser, MB more for four times the lines", large_mb - small_mb, MEMORY_BAR_MB, False),
    )
    print()
    missed = 0
    for what, value, bar, is_least in rows:
        is_met = value >= bar if is_least else value <= bar
        missed += not is_met
        print(f"{what:44} {value:12.2f}  bar {bar:g}: {'met' if is_met else 'missed'}")
    return 1 if missed else 0


def main() -> int:
    """Prints all tables; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=300, help="of all arms (%(default)s)")
    rounds = parser.parse_args().rounds
    random.seed(0)
    print(head("trace", "hosts/transfer_queue", "spine"))
    print(
        f"Ray      {ray.__version__}, TransferQueue {transfer_queue.__version__}, torch {torch.__version__}"
    )
    scratch: AbstractContextManager[str] = tempfile.TemporaryDirectory()
    with scratch as name:
        directory = Path(name)
        ray.init(address="local", num_cpus=8, include_dashboard=False, log_to_driver=False)
        transfer_queue.init()
        arms = Arms(directory)
        try:
            shares = show(measure(arms, rounds))
        finally:
            arms.close()
            transfer_queue.close()
            ray.shutdown()
        small = analysed(directory, LINES // 4)
        large = analysed(directory, LINES)
    print(f"\nanalyser {large[0]:,.0f} lines/s, its start included; {small[1]:.0f} MB, {large[1]:.0f} MB")
    return held_to_bars(shares, (large[0], small[1], large[1]))


if __name__ == "__main__":
    sys.exit(main())
