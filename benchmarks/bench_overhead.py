"""What the monitor costs a real FlagScale run and a long one, beside what a user would switch on instead.

    python benchmarks/bench_overhead.py [--rounds 60] [--steps 100000]

First a tiny GPT through FlagScale's unmodified train_gpt.py on the CPU, one process, the arm changed between
steps (`peers/paired_run.py`): the ratio of each step to the median of the six nearest baseline steps. (At a
log point the training thread does nothing else on the CPU: the writer makes the intervals. The baseline has
the monitor's wrappers in it, told to do nothing.)

Then a synthetic feed of `--steps` steps through the same hooks: microseconds on the training thread, whether
they grow, and the memory of trainer and writer. "Off" is installed and not asked for, with the 28 calls of a
step's timers. Memory is compared from the step on at which the ring has been filled once: it is 16.8 MB that
both processes map, and a page counts to a process when that first touches it. Exits 1 where a bar is missed,
with a line for each.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402

from benchmarks.bench_hot_path import Arm, loop  # noqa: E402
from benchmarks.peers.paired_run import ARMS, OFF, TIMED, steps_to_train  # noqa: E402
from benchmarks.provenance import head  # noqa: E402
from tests.processes import flagscale as fs  # noqa: E402

RESAMPLES = 2000
WRITER = "flagscale_perf.perf_logger"
LOG_INTERVAL = 10
WINDOW = 10_000  # steps at the beginning and the end of the feed that are compared
TURNS = 10  # in which a window of short arms is fed, for differences of nanoseconds
FILLED = 40_000  # steps after which the ring has been filled: two of its 65 536 slots a step
BACKLOG = 20_000  # records in the ring above which the feed waits for the writer
OFF_BAR_US, PHASES_BAR_US, LOG_BAR_US, GROWTH_BAR, MEMORY_BAR_MB = 0.1, 10.0, 100.0, 1.1, 20.0


def paired(rounds: int, scratch: Path) -> dict[str, list[float]]:
    """Arm -> ratios of its steps to the baseline near them, on the real run."""
    output = scratch / "times.json"
    words = [
        str(ROOT / "benchmarks/peers/paired_run.py"),
        str(output),
        str(rounds),
        str(fs.train_gpt()),
        *fs.TINY,
    ]
    words += [
        "--train-iters",
        str(steps_to_train(rounds)),
        "--log-interval",
        "1000000",
        "--enable-perf-monitor",
        "--perf-breakdown",
    ]
    words += ["--perf-log-dir", "perf", "--perf-max-overhead", "100"]
    process = fs.start([sys.executable, *fs.launched(*words)], scratch, **fs.only_rank())
    printed, _ = process.communicate()
    if process.returncode or not output.exists():
        raise SystemExit(f"the training run failed (exit {process.returncode}):\n{printed[-3000:]}")
    return ratios(json.loads(output.read_text()))


def ratios(times: Sequence[tuple[str, int]]) -> dict[str, list[float]]:
    """Each step over the median of the baseline steps nearest to it, two rounds' worth."""
    baselines = [(i, ns) for i, (arm, ns) in enumerate(times) if arm == OFF]
    found: dict[str, list[float]] = defaultdict(list)
    for i, (arm, ns) in enumerate(times):
        others = [pair for pair in baselines if pair[0] != i]
        nearest = sorted(others, key=lambda pair: abs(pair[0] - i))[: 2 * TIMED]
        found[arm].append(ns / statistics.median(base for _, base in nearest))
    return found


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % of the medians of resamples lie in it."""
    medians = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES)]


def feed(arm: Arm, steps: int) -> list[int]:
    """Nanoseconds of each step; waits, outside of them, while the writer is behind."""
    times, clock = [], time.perf_counter_ns
    for number in range(steps):
        if number % 1000 == 0:
            catch_up(arm, BACKLOG)
        start_ns = clock()
        arm.step()
        times.append(clock() - start_ns)
    return times


def catch_up(arm: Arm, backlog: int) -> None:
    """Until the arm's writer has brought all but so many records into the run file."""
    if arm.hooks.active:
        ring = arm.hooks._logger._ring
        while ring.stored - ring.saved > backlog:
            time.sleep(0.01)


class Memory(NamedTuple):
    """Resident megabytes of this process and of a writer, and how many of these are in files and shared
    memory.
    """

    trainer: float
    writer: float
    trainer_shared: float
    writer_shared: float

    def __sub__(self, before: Memory) -> Memory:  # type: ignore[override]
        """What has grown since."""
        return Memory(*(now - then for now, then in zip(self, before, strict=True)))


def memory_mb(arm: Arm) -> Memory:
    """Of the arm's writer, the last one started, once that has nothing to do."""
    catch_up(arm, 0)
    trainer = psutil.Process()
    writer = max(
        (child for child in trainer.children() if WRITER in child.cmdline()), key=psutil.Process.create_time
    )
    ours, its = trainer.memory_info(), writer.memory_info()
    return Memory(*(size / 1e6 for size in (ours.rss, its.rss, ours.shared, its.shared)))


def dearest_us(times: Sequence[int]) -> float:
    """Median step at the place of the log interval where steps take longest."""
    return max(statistics.median(times[place::LOG_INTERVAL]) for place in range(LOG_INTERVAL)) / 1e3


def fed(steps: int, scratch: Path) -> dict[str, float]:
    """The synthetic feed's figures by name; microseconds are differences to the same loop unmonitored."""
    arms: dict[str, Arm] = {}
    for name, monitor in {
        "plain": "none",
        "timers": "none",
        "off": "off",
        "on": "on",
        "phases": "phases",
    }.items():
        directory = scratch / name
        directory.mkdir()
        arms[name] = loop(directory, monitor, timers=name in ("timers", "off", "phases"))
    times: dict[str, list[int]] = {name: [] for name in ("plain", "timers", "off", "on")}
    for _ in range(TURNS):
        for name, taken in times.items():
            taken += feed(arms[name], WINDOW // TURNS)
    median_us = {name: statistics.median(taken) / 1e3 for name, taken in times.items()}
    phases = arms["phases"]
    start = memory_mb(phases)
    first = feed(phases, WINDOW)
    for _ in range(FILLED // WINDOW - 1):
        feed(phases, WINDOW)
    filled = memory_mb(phases)
    for _ in range((steps - FILLED) // WINDOW - 1):
        feed(phases, WINDOW)
    last = feed(phases, WINDOW)
    early, late = filled - start, memory_mb(phases) - filled
    dropped = phases.hooks._logger._ring.dropped
    for arm in arms.values():
        arm.close()
    at_log = [dearest_us(window) - median_us["timers"] for window in (first, last)]
    return {
        "off": median_us["off"] - median_us["timers"],
        "on": median_us["on"] - median_us["plain"],
        "phases": statistics.median(first) / 1e3 - median_us["timers"],
        "log": max(at_log),
        "growth": at_log[1] / at_log[0],
        "trainer": late.trainer,
        "writer": late.writer,
        "early trainer": early.trainer,
        "early trainer shared": early.trainer_shared,
        "early writer": early.writer,
        "early writer shared": early.writer_shared,
        "dropped": float(dropped),
    }


def main() -> int:
    """Prints both tables; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=60, help="of all arms in the real run")
    parser.add_argument(
        "--steps",
        type=int,
        default=100_000,
        help="of the synthetic feed with phases; 1000000 for the whole bar",
    )
    given = parser.parse_args()
    random.seed(0)
    print(
        head(
            "spine", "training/recording", "hooks.py", "perf_metrics.py", "perf_logger.py", "writer", "hosts"
        )
    )
    with tempfile.TemporaryDirectory() as scratch:
        compared = paired(given.rounds, Path(scratch))
        figures = fed(given.steps, Path(scratch))
    print(
        f"real     tiny GPT, 1 rank, CPU rehearsal; {given.rounds} rounds, {TIMED} timed steps of each "
        "arm in each"
    )
    print(f"{'step over the baseline near it':32} {'median':>8}  {'95 % interval':>18} {'steps':>6}")
    for arm in ARMS:
        low, high = interval(compared[arm])
        print(
            f"{arm:32} {statistics.median(compared[arm]):8.4f}  {f'[{low:.4f}, {high:.4f}]':>18} "
            f"{len(compared[arm]):6}"
        )
    print(f"{'--log-straggler':32} {'-':>8}  it needs a CUDA device")
    print(
        f"feed     {given.steps} steps with phases, 28 marks each; it waits for the writer while "
        f"{BACKLOG} records are behind"
    )
    for who in ("trainer", "writer"):
        grown, shared = figures[f"early {who}"], figures[f"early {who} shared"]
        print(
            f"         in its first {FILLED} steps the {who} grew by {grown:.1f} MB, {shared:.1f} of "
            "them the ring's pages and files"
        )
    return _held_to_bars(figures)


def _held_to_bars(figures: dict[str, float]) -> int:
    bars = {
        "off": ("off, us a step with 28 timer calls", OFF_BAR_US),
        "on": ("on, us a step", PHASES_BAR_US),
        "phases": ("on with phases, us a step", PHASES_BAR_US),
        "log": ("at a log point, us", LOG_BAR_US),
        "growth": ("at the last ones over the first", GROWTH_BAR),
        "trainer": ("trainer's memory grew later by MB", MEMORY_BAR_MB),
        "writer": ("writer's memory grew later by MB", MEMORY_BAR_MB),
        "dropped": ("records dropped", 0.0),
    }
    missed = [
        f"{what}: {figures[name]:.2f}, bar {bar:g}"
        for name, (what, bar) in bars.items()
        if figures[name] > bar
    ]
    for name, (what, bar) in bars.items():
        print(f"{what:32} {figures[name]:8.2f}  bar {bar:g}")
    for line in missed:
        print(f"missed   {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
