"""Writes the run files of a fleet that never was: `python make_runs.py DIRECTORY [RUNS]`, 2,000 by default.

A run is 100 to 200 steps of 16 devices on two of 64 hosts, and begins half an hour after the one before.
Records and lines are made by the package's own code; the times are made up. One host is slow, and small
batches use the devices less.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flagscale_perf.spine.clock import NS_PER_S, Anchor
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import SCHEMA_VERSION, RunEnd, RunHeader
from flagscale_perf.spine.session import file_names
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.rank_records import NodeRecord, RanksRecord
from flagscale_perf.training.records import NO_STEP, StepRecord
from flagscale_perf.training.utilisation import Scale
from flagscale_perf.training.window import IntervalWindow, end_mono_ns

RUNS, HOSTS, DEVICES_PER_HOST, STRETCH = 2000, 64, 8, 10
SLOW_HOST = "node17"
BEGIN_WALL_NS, APART_NS = 1_777_593_600 * NS_PER_S, 1800 * NS_PER_S  # 2026-05-01, Unix time
PEAK_FLOP_PER_S, SEQ_LENGTH, MS = 1e15, 4096, 1_000_000
SLOWER_NS = 40 * MS


def main() -> None:
    """Writes all of them; fewer are of the same weeks, as questions are."""
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else RUNS
    for place in range(runs):
        write(Path(sys.argv[1]), place * max(1, RUNS // runs))


def write(directory: Path, number: int) -> Path:
    """Writes the run of this number; returns its file."""
    header, *records = records_of(number)
    path = directory / f"run_{number:05}" / file_names(header.session_id)["records"]
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(map(encode, [header, *records])))
    return path


def records_of(number: int) -> Iterator[Any]:
    """The records of the run of this number, in the order of its file."""
    dice = random.Random(number)
    hosts = [f"node{host:02}" for host in sorted(dice.sample(range(HOSTS), 2))]
    batch, steps = dice.choice((64, 128, 256, 512)), dice.randint(100, 200)
    header = _header(number, hosts, batch, steps)
    window = IntervalWindow(
        STRETCH, Anchor(header.start_wall_ns, header.start_mono_ns), Scale.of(RunFacts.of(header.facts))
    )
    yield header
    for place, host in enumerate(hosts):
        yield _node(place, host)
    slower_ns = SLOWER_NS * (SLOW_HOST in hosts)
    end_ns = header.start_mono_ns
    for iteration in range(1, steps + 1):
        step = _step(dice, iteration, batch, slower_ns)._replace(start_ns=end_ns)
        end_ns = end_mono_ns(step)
        yield step
        if interval := window.add(step):
            yield interval
        if iteration % STRETCH == 0:
            yield _ranks(dice, iteration, hosts, step.iteration_ns)
    yield RunEnd("completed", header.start_wall_ns + end_ns - header.start_mono_ns, steps, 0)


def _header(number: int, hosts: list[str], batch: int, steps: int) -> RunHeader:
    start_wall_ns = BEGIN_WALL_NS + number * APART_NS
    facts: dict[str, Any] = {
        "host": "FlagScale 0.8.0",
        "hostname": hosts[0],
        "pid": 1000 + number,
        "world_size": len(hosts) * DEVICES_PER_HOST,
        "tensor_parallel": 2,
        "pipeline_parallel": 1,
        "data_parallel": 8,
        "device": "NVIDIA H200",
        "dtype": "bf16",
        "peak_flop_per_s": PEAK_FLOP_PER_S,
        "model_family": "llama",
        "seq_length": SEQ_LENGTH,
        "micro_batch_size": 1,
        "global_batch_size": batch,
        "train_iters": steps,
    }
    return RunHeader(
        schema_version=SCHEMA_VERSION,
        session_id=time.strftime("%Y%m%d_%H%M%S", time.gmtime(start_wall_ns // NS_PER_S)),
        start_wall_ns=start_wall_ns,
        start_mono_ns=number * NS_PER_S,
        facts=facts,
        config={"perf_log_interval": STRETCH},
        host=hosts[0],
        pid=1000 + number,
    )


def _node(place: int, host: str) -> NodeRecord:
    ranks = list(range(place * DEVICES_PER_HOST, (place + 1) * DEVICES_PER_HOST))
    return NodeRecord(
        host, ranks, [2000 + rank for rank in ranks], ["NVIDIA H200"] * len(ranks), [0] * len(ranks)
    )


def _step(dice: random.Random, iteration: int, batch: int, slower_ns: int) -> StepRecord:
    # 7 ms a sample, and 200 ms whatever the batch; now and then a step stalls
    iteration_ns = (200 + 7 * batch) * MS + dice.randint(-5 * MS, 5 * MS) + slower_ns
    iteration_ns += 300 * MS * (dice.random() < 0.04)
    tokens = batch * SEQ_LENGTH
    return NO_STEP._replace(
        iteration=iteration,
        iterations=1,
        warmup=int(iteration == 1),
        iteration_ns=iteration_ns,
        train_step_ns=iteration_ns - 3 * MS,
        device_ns=iteration_ns - 5 * MS,
        samples=batch,
        tokens=tokens,
        microbatches=batch // 8,
        model_flops=12_000_000_000 * tokens,
        hardware_flops=13_000_000_000 * tokens,
    )


def _ranks(dice: random.Random, iteration: int, hosts: list[str], iteration_ns: int) -> RanksRecord:
    work_ns = [
        iteration_ns - 90 * MS - dice.randint(0, 4 * MS) + SLOWER_NS * (host == SLOW_HOST)
        for host in hosts
        for _ in range(DEVICES_PER_HOST)
    ]
    return RanksRecord(
        first_iteration=iteration - STRETCH + 1,
        iteration=iteration,
        ranks_per_entry=1,
        iteration_ns=[iteration_ns] * len(work_ns),
        work_ns=work_ns,
        wait_ns=[iteration_ns - own_ns for own_ns in work_ns],
        data_ns=[2 * MS] * len(work_ns),
        memory_peak_bytes=[110_000_000_000] * len(work_ns),
        silent=[],
        silent_count=0,
    )


if __name__ == "__main__":
    main()
