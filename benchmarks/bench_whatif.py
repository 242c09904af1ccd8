"""What-if predictions of recorded trainings beside what the host said, and how long a large job takes.

python benchmarks/bench_whatif.py [--record SEED] [--data DIR] [--each] [--bytedance FOLDER [--python PYTHON]]

Predictions are made anew of the recorded runs (whatif/predictions.py); `--record` trains first, half an hour
a seed. `--bytedance`: beside published traces, too (whatif/bytedance.py). 16 stages and 80 replicas, each of
which is a tensor parallel group of 8, are 10,240 ranks. Ends with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import head
from benchmarks.whatif import bytedance, predictions
from flagscale_perf.analysis.replays import RankStep
from flagscale_perf.whatif.engine import replays_of
from flagscale_perf.whatif.schedules import Pass, Shape
from tests.timed_pipelines import FORWARD, Pipeline

Found = TypeVar("Found")
MS, MB = 1_000_000, 1000  # ru_maxrss is in kilobytes
DATA = Path(__file__).with_name("whatif")
STAGES, REPLICAS, BATCHES, STEPS = 16, 80, 128, 20


def main() -> int:
    """Prints the table of predictions, and what the large job takes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA, help="where runs/ is")
    parser.add_argument("--record", metavar="SEED", type=int, help="train what this seed draws first")
    parser.add_argument("--each", action="store_true", help="every prediction, too")
    parser.add_argument("--bytedance", metavar="FOLDER", type=Path)
    parser.add_argument("--python", help="that has what ByteDance's code requires, to be timed")
    options = parser.parse_args()
    if options.record is not None:
        words = [str(options.record), "--into", str(options.data)]
        subprocess.run([sys.executable, str(DATA / "record.py"), *words], check=True)
    print(head("whatif", "benchmarks/whatif"))
    found = [*predictions.outcomes(predictions.read_all(options.data / "runs"))]
    print(predictions.table(found))
    if options.each:
        print("\n".join(map(str, found)))
    missed = predictions.missed(found)
    print("\n".join([f"missed: {each}" for each in missed] or ["every bar is met"]))
    large_job()
    is_same = options.bytedance is None or bytedance.compared(options.bytedance, options.python)
    return int(bool(missed) or not is_same)


def large_job() -> None:
    """A line for each: the graph, a change, the paths, the memory."""
    pipeline = Pipeline(Shape(STAGES, BATCHES), 1, pass_ns, message_ns=200_000)
    alone, step_ns = pipeline.run()
    pipeline.replicas = REPLICAS
    steps = [
        one._replace(
            rank=one.rank * REPLICAS + replica,
            iteration=iteration,
            durs_ns=array("q", one.durs_ns),  # its own, as in a real job
            begin_ns=one.begin_ns + iteration * step_ns,
        )
        for one in alone
        for replica in range(REPLICAS)
        for iteration in range(STEPS)
    ]
    print(f"{STEPS} steps of {STAGES * REPLICAS:,} lanes, {parts(steps):,} parts")
    before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MB
    replays = timed("graph", lambda: replays_of(pipeline.layout, steps))
    timed("one change", lambda: replays.gains([REPLICAS], FORWARD))
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
    sys.exit(main())
