"""How long a large job's steps take to be replayed, and how much memory.

python benchmarks/bench_whatif.py [--stages N] [--replicas N] [--batches N] [--steps N]

16 stages and 80 replicas, each of which is a tensor parallel group of 8, are 10,240 ranks. Not a test: it
asserts nothing.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import head
from flagscale_perf.analysis.replays import RankStep
from flagscale_perf.whatif.engine import replays_of
from flagscale_perf.whatif.schedules import Pass, Shape
from tests.timed_pipelines import FORWARD, Pipeline

Found = TypeVar("Found")
MS, MB = 1_000_000, 1000  # ru_maxrss is in kilobytes


def main() -> None:
    """Prints a line for each: the graph, a change, the paths, the memory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, count in (("stages", 16), ("replicas", 80), ("batches", 128), ("steps", 20)):
        parser.add_argument(f"--{name}", type=int, default=count, help=f"(default: {count})")
    options = parser.parse_args()
    print(head("whatif"))
    pipeline = Pipeline(Shape(options.stages, options.batches), 1, pass_ns, message_ns=200_000)
    alone, step_ns = pipeline.run()
    pipeline.replicas = options.replicas
    steps = [
        one._replace(
            rank=one.rank * options.replicas + replica,
            iteration=iteration,
            begin_ns=one.begin_ns + iteration * step_ns,
        )
        for one in alone
        for replica in range(options.replicas)
        for iteration in range(options.steps)
    ]
    print(f"{options.steps} steps of {options.stages * options.replicas:,} lanes, {parts(steps):,} parts")
    before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MB
    replays = timed("graph", lambda: replays_of(pipeline.layout, steps))
    timed("one change", lambda: replays.gains([options.replicas], FORWARD))
    timed("critical paths", replays.paths)
    after_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MB
    print(f"{'memory':16} {after_mb:7.0f} MB, of which {before_mb:.0f} MB before")


def pass_ns(stage: int, replica: int, one: Pass) -> int:
    """Backward twice as long as forward, and no two stages alike."""
    return (20 if one.is_forward else 40) * MS + stage * 1000


def parts(steps: list[RankStep]) -> int:
    """Of all steps together."""
    return sum(len(one.parts) for one in steps)


def timed(what: str, does: Callable[[], Found]) -> Found:
    """Prints what it takes, by the clock and of a processor."""
    begin_s, cpu_s = time.perf_counter(), time.process_time()
    found = does()
    took_s, used_s = time.perf_counter() - begin_s, time.process_time() - cpu_s
    print(f"{what:16} {took_s:7.2f} s, {used_s:.2f} s of a processor")
    return found


if __name__ == "__main__":
    main()
