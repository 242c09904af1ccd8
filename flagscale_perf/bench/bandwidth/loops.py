"""How long one operation takes: several loops of many runs, with a barrier before each loop and none within
it.

A barrier for each run would measure the barrier where messages are small, and hide how ranks drift apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

WARMUP = 5
MAX_RUNS = 100_000


@dataclass(frozen=True)
class Loops:
    """How many loops, and how long each lasts.

    Attributes:
        count: loops, each of them a repetition.
        seconds: that a loop takes at least.
    """

    count: int
    seconds: float


@dataclass(frozen=True)
class Timer:
    """How to time on this device.

    Attributes:
        wait: until the device has done all that it was given.
        barrier: until all ranks are here.
        longest: the largest of all ranks' values, the same on each; of every value of a list.
    """

    wait: Callable[[], None]
    barrier: Callable[[], None]
    longest: Callable[[list[float]], list[float]]


def timer_of(torch: Any, dist: Any, device: str, group: Any) -> Timer:
    """A timer for the ranks of a group that communicates through the processor, so that it does not disturb
    what is measured.
    """

    def longest(values: list[float]) -> list[float]:
        """By a collective."""
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group)
        found: list[float] = tensor.tolist()
        return found

    wait = torch.cuda.synchronize if device.startswith("cuda") else _nothing
    return Timer(wait, lambda: dist.barrier(group=group), longest)


def alone(torch: Any, device: str) -> Timer:
    """A timer for what one rank does by itself."""
    wait = torch.cuda.synchronize if device.startswith("cuda") else _nothing
    return Timer(wait, _nothing, list)


def seconds_per_run(run: Callable[[], Any], timer: Timer, loops: Loops) -> list[float]:
    """For each loop, the time of the slowest rank. All ranks call it with the same operation."""
    for _ in range(WARMUP):
        run()
    timer.wait()
    runs = _enough(run, timer, loops.seconds)
    return timer.longest([_loop(run, timer, runs) / runs for _ in range(loops.count)])


def _enough(run: Callable[[], Any], timer: Timer, seconds: float) -> int:
    """Number of runs that make a loop long enough, the same on all ranks."""
    runs = 1
    while True:
        took = timer.longest([_loop(run, timer, runs)])[0]
        if took >= seconds or runs >= MAX_RUNS:
            return runs
        growth = seconds / took * 1.1 if took > seconds / 20 else 10
        runs = min(MAX_RUNS, max(runs + 1, int(runs * growth)))


def _loop(run: Callable[[], Any], timer: Timer, runs: int) -> float:
    timer.barrier()
    timer.wait()
    start = time.perf_counter()
    for _ in range(runs):
        run()
    timer.wait()
    return time.perf_counter() - start


def _nothing() -> None:
    """For devices where there is nothing to wait for."""
