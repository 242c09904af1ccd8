"""What profiling a step costs, beside other ways to do it, and how fast its events become records.

python benchmarks/bench_profile.py [--seconds S] [--events N] [--quick]

A Qwen3 of random weights on the CPU, with one thread: `tiny` (32 tokens, hidden 64), where an operator takes
next to nothing, which is the worst case of any profiler, and `mid` (256 tokens, hidden 512), where it takes
about as long as a kernel of a device. In each round every arm runs one step, in random order; `off again` is
`off` once more. A ratio is the median, over the rounds, of an arm's CPU time of the whole process by that of
`off` in the same round; between the brackets lie 95 % of the medians of resamples. "Step" is the step alone,
"whole" has what starts and stops the arm and makes a table of what it saw: for our Profiler, records. "Not
its step" is one that the same Profiler lets pass, between others that it profiles. "1 in 100" is one profiled
step and 99 of these, out of the same round; for `tiny`, whose steps are short, 100 steps in a row are
measured, too.

At last a million events become records: of ten steps, and of one, in a process each. Reading has the seconds
from torch's raw events to the last record and the file of single runs, also of those that are read between
steps, and the bar holds them together with the CSV of these runs; stopping is torch's.
Memory is what was added to the process, at the highest and when all was over; beside it that of torch's
profiler alone, stopped after the one step and never read. Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

from benchmarks.profile_arms import (  # noqa: E402
    SIZES,
    Arm,
    Ours,
    Size,
    Took,
    clock,
    dispatched,
    made,
    ours,
    patched,
    plain,
    torchs,
    unread,
)
from benchmarks.provenance import head  # noqa: E402
from flagscale_perf.profile.analysis import timings  # noqa: E402
from flagscale_perf.profile.calls import CallFiles, read_calls  # noqa: E402
from flagscale_perf.profile.kineto import Session  # noqa: E402
from flagscale_perf.profile.profiler import Profiler, _Output  # noqa: E402
from flagscale_perf.profile.ranges import Ranges  # noqa: E402
from flagscale_perf.profile.records import WindowRecord  # noqa: E402
from flagscale_perf.profile.window import Reduction  # noqa: E402
from flagscale_perf.profiling import ProfileOptions, Steps  # noqa: E402

RESAMPLES, WARM_UP, BLOCK = 2000, 2, 100
OFF, AGAIN, OURS, BETWEEN = "off", "off again", "our Profiler", "our Profiler, not its step"
UNREAD = "torch's events alone, not read"
AVERAGES, STACKS = "torch.profiler, key_averages()", "the same, with_stack=True"
DISPATCH, PATCHES = "TorchDispatchMode, perf_counter", "patched functions, perf_counter"
SAMPLED = "our Profiler, 1 in 100"
UNREAD_SAMPLED = "torch's events alone, 1 in 100"
STEP_BAR, SAMPLED_BAR, SECONDS_BAR, MEMORY_BAR_MB = 1.05, 1.02, 5.0, 1000.0


class Bar(NamedTuple):
    """A figure that must not be larger than it is said."""

    what: str
    value: float
    bar: float


def rounds_of(arms: dict[str, Arm], seconds: float, least: int) -> dict[str, list[Took]]:
    """Every arm once a round, in random order, for so long, but so many rounds at least."""
    found: dict[str, list[Took]] = {name: [] for name in arms}
    end_s = time.monotonic() + seconds
    number = 0
    while number < WARM_UP + least or time.monotonic() < end_s:
        for name in random.sample(list(arms), len(arms)):
            gc.collect(0)
            took = arms[name]()
            if number >= WARM_UP:
                found[name].append(took)
        number += 1
    return found


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % of the medians of resamples lie in it."""
    medians = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES)]


def shown(ratios: Sequence[float]) -> str:
    """The median with its interval."""
    low, high = interval(ratios)
    return f"x{statistics.median(ratios):.3f} [{low:.3f}, {high:.3f}]"


def measured(name: str, size: Size, training: bool, seconds: float) -> list[Bar]:
    """Prints the table of one model and one kind of step; returns its bars."""
    model, step = made(size, training)
    both = Ours(model)
    arms = {
        OFF: plain(step),
        AGAIN: plain(step),
        OURS: ours(both, step),
        BETWEEN: ours(both, step, False),
        UNREAD: unread(step),
        AVERAGES: torchs(step, False),
        STACKS: torchs(step, True),
        DISPATCH: dispatched(step),
        PATCHES: patched(step),
    }
    found = rounds_of(arms, seconds, 5)
    both.profiler.close()
    base = [took.step_ns for took in found[OFF]]
    what = f"{name} {'training' if training else 'inference'}"
    step_us = statistics.median(base) / 1e3
    spread = statistics.quantiles(base, n=4)
    print(
        f"\n{what}: {step_us / 1e3:.2f} ms a step where nothing is attached (quartiles"
        f" {spread[0] / 1e6:.2f} to {spread[2] / 1e6:.2f}), {both.events} events,"
        f" {step_us / both.events:.1f} us each; {len(base)} rounds"
    )
    print(f"  {'':32}{'step':>25} {'whole':>25}")
    for arm in filter(OFF.__ne__, arms):
        steps = [took.step_ns / off for took, off in zip(found[arm], base, strict=True)]
        wholes = [took.whole_ns / off for took, off in zip(found[arm], base, strict=True)]
        print(f"  {arm:32}{shown(steps):>25} {shown(wholes):>25}")
        if arm == OURS:
            ratio = statistics.median(steps)
    sampled = [
        (one.whole_ns + (BLOCK - 1) * other.whole_ns) / BLOCK / off
        for one, other, off in zip(found[OURS], found[BETWEEN], base, strict=True)
    ]
    print(f"  {SAMPLED:32}{'':25} {shown(sampled):>25}")
    alone = [(one.whole_ns / off + BLOCK - 1) / BLOCK for one, off in zip(found[UNREAD], base, strict=True)]
    print(f"  {UNREAD_SAMPLED:32}{'':25} {shown(alone):>25}")
    bars = [Bar(f"{what}, 1 in 100", statistics.median(sampled), SAMPLED_BAR)]
    if name == "mid":
        bars.append(
            Bar(f"{what}, a profiled step ({step_us / both.events:.0f} us an event)", ratio, STEP_BAR)
        )
        return bars
    in_a_row = blocks(model, step, seconds / 4)
    print(f"  {f'100 steps in a row, {len(in_a_row[OFF])} rounds':32}")
    off = [took.whole_ns for took in in_a_row.pop(OFF)]
    for arm, all_took in in_a_row.items():
        ratios = [took.whole_ns / each for took, each in zip(all_took, off, strict=True)]
        print(f"  {arm:32}{'':25} {shown(ratios):>25}")
    bars.append(Bar(f"{what}, 1 in 100, in a row", statistics.median(ratios), SAMPLED_BAR))
    return bars


def blocks(model: torch.nn.Module, step: Callable[[], None], seconds: float) -> dict[str, list[Took]]:
    """100 steps in a row, of which our Profiler takes one; it comes last."""
    sampling = Ours(model, every=BLOCK)

    def off() -> Took:
        begin = clock()
        for _ in range(BLOCK):
            step()
        return Took(clock() - begin, clock() - begin)

    def sampled() -> Took:
        begin = clock()
        for _ in range(BLOCK):
            sampling.profiler.begin_step()
            step()
            sampling.profiler.end_step()
        sampling.wait()
        return Took(clock() - begin, clock() - begin)

    found = rounds_of({OFF: off, AGAIN: off, SAMPLED: sampled}, seconds, 4)
    sampling.profiler.close()
    return found


def memory_mb(field: str) -> float:
    """Of this process: VmRSS, or VmHWM for the most it ever had."""
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    found = re.search(rf"{field}:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) / 1024


def torch_alone(step: Callable[[], None]) -> None:
    """Prints what torch's profiler adds to memory until it has stopped."""
    before_mb = memory_mb("VmRSS")
    with torch.autograd.profiler.profile(use_kineto=True):
        step()
    print(memory_mb("VmHWM") - before_mb)


def convert(events: int, steps: int) -> None:
    """In a process of its own: so many events in so many steps to records; 0: torch alone, in one. Prints
    figures.
    """
    torch.set_num_threads(1)
    model, train = made(SIZES["tiny"], True)
    one = Ours(model)
    for arm in (plain(train), ours(one, train)):
        arm()
    one.profiler.close()
    repeats = max(1, round(events / max(1, steps) / one.events))

    def step() -> None:
        for _ in range(repeats):
            train()

    gc.collect()
    if not steps:
        torch_alone(step)
        return
    reads: list[float] = []

    def read(self: Session, most: int) -> None:
        begin_s = time.perf_counter()
        original(self, most)
        reads.append(time.perf_counter() - begin_s)

    original = Session.read
    Session.read = read
    write_calls()
    options = ProfileOptions(
        Steps(1, steps), Path.cwd(), clean=0, shapes=False, memory=False, max_events=10**9
    )
    records: list[Any] = []
    profiler = Profiler(model, options, put=records.append)
    before_mb, stop_s = memory_mb("VmRSS"), 0.0
    for _ in range(steps):
        profiler.begin_step()
        step()
        begin_s = time.perf_counter()
        profiler.end_step()
        stop_s += time.perf_counter() - begin_s
    stopped_s = time.perf_counter()
    profiler.close()
    end_s, peak_mb = time.perf_counter(), memory_mb("VmHWM")
    del profiler
    csv_s, csv_mb = csv_of_calls()
    (window,) = [record for record in records if isinstance(record, WindowRecord)]
    print(
        window.events,
        len(records),
        stop_s - sum(reads),
        end_s - stopped_s + sum(reads),
        peak_mb - before_mb,
        memory_mb("VmRSS") - before_mb,
        csv_s,
        csv_mb,
    )


def write_calls() -> None:
    """From now on single runs are written, too, as where a rank has a writer."""
    join = _Output.join

    def joined(self: _Output, ranges: Ranges) -> Reduction:
        return dataclasses.replace(join(self, ranges), files=CallFiles(Path.cwd(), 1 << 40))

    _Output.join = joined


def csv_of_calls() -> tuple[float, float]:
    """Seconds for the CSV of all runs of the directory, and MB of it."""
    nothing = {name: np.zeros(0, np.int64) for name in ("number", "iteration", "phase")}
    rank: Any = SimpleNamespace(rank=0, offset_ns=0, steps=nothing)
    begin_s = time.perf_counter()
    size = 0
    for path in Path.cwd().glob("perf_calls_*.npz"):
        text = b"".join(timings.lines_of(rank, read_calls(path)))
        Path("detailed_timings.csv").write_bytes(text)
        size += len(text)
    return time.perf_counter() - begin_s, size / 1e6


def converted(events: int, steps: int) -> list[float]:
    """What `convert` prints, in a process of its own."""
    words = [sys.executable, str(Path(__file__).absolute()), "--convert", str(events), str(steps)]
    with TemporaryDirectory() as directory:
        done = subprocess.run(words, capture_output=True, text=True, cwd=directory)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return list(map(float, done.stdout.split()))


def conversions(events: int) -> list[Bar]:
    """Prints a line for each way to come to so many events; returns the bars."""
    bars = []
    for steps in (10, 1):
        seen, records, stop_s, read_s, peak_mb, left_mb, csv_s, csv_mb = converted(events, steps)
        what = f"{seen:,.0f} events of {steps} step{'s' if steps > 1 else ''}"
        print(
            f"\n{what}: stopping {stop_s:.2f} s, reading to {records:,.0f} records {read_s:.2f} s,"
            f" detailed_timings.csv of {csv_mb:.0f} MB {csv_s:.2f} s; memory"
            f" {peak_mb:.0f} MB at the highest, {left_mb:.0f} MB at the end"
        )
        bars += [Bar(f"{what}, s", read_s + csv_s, SECONDS_BAR), Bar(f"{what}, MB", peak_mb, MEMORY_BAR_MB)]
    print(f"torch's profiler alone, of one such step: {converted(events, 0)[0]:.0f} MB when it has stopped")
    return bars


def main() -> int:
    """Prints all tables; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=30, help="of each of the four tables (%(default)s)")
    parser.add_argument("--events", type=int, default=1_000_000, help="that become records (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="a tenth of both, to see that it runs")
    parser.add_argument("--convert", type=int, nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.convert:
        convert(*args.convert)
        return 0
    part = 0.1 if args.quick else 1.0
    random.seed(0)
    torch.set_num_threads(1)
    print(head("profile"))
    print(f"torch    {torch.__version__}, transformers {transformers.__version__}, 1 thread")
    bars = []
    for name, size in SIZES.items():
        for training in (False, True):
            bars += measured(name, size, training, part * args.seconds)
    bars += conversions(int(part * args.events))
    print()
    for bar in bars:
        verdict = "met" if bar.value <= bar.bar else "missed"
        print(f"{bar.what:52} {bar.value:10.3f}  bar {bar.bar:g}: {verdict}")
    return int(any(bar.value > bar.bar for bar in bars))


if __name__ == "__main__":
    sys.exit(main())
