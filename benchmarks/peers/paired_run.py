"""FlagScale's own training script with a switch that sets another arm every few steps; writes what each step
took.

    python -m flagscale_perf.launch benchmarks/peers/paired_run.py OUTPUT ROUNDS train_gpt.py ARGUMENTS

One process, so that every arm meets the same machine. The order of the arms is drawn anew in every round. A
step is timed from its start to the start of the next one, so what happens between two steps counts, too; the
first steps of an arm do not.
"""

from __future__ import annotations

import importlib
import json
import random
import runpy
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

LOOP = "flagscale.train.train"
SETTLE, TIMED = 2, 3  # steps of an arm in a round
WARMUP = 20  # steps before the first round
OFF = "off"


class Switch:
    """Turns the monitor and its competitors on and off between two steps of a running training."""

    def __init__(self) -> None:
        self.hooks: Any = None
        self._timeline: Any = None
        self._telling: Any = None
        self._levels: dict[int, tuple[dict[str, Any], dict[str, int]]] = {}
        self._profiler: Any = None

    def attach(self, hooks: Any) -> None:
        """The monitor has started, phases included."""
        self.hooks, self._timeline = hooks, hooks._monitor.timeline

    def set(
        self,
        monitor: bool = False,
        phases: bool = False,
        level: int = 0,
        barrier: bool = False,
        profile: bool = False,
    ) -> None:
        """What is on from now on."""
        if self._profiler is not None:
            self._profiler.stop()
            self._profiler = None
        self.hooks.active = monitor
        self.hooks._monitor.timeline = self._timeline if phases else None
        global_vars: Any = sys.modules["megatron.training.global_vars"]
        timers, global_vars.get_args().barrier_with_L1_time = global_vars.get_timers(), barrier
        self._telling = self._telling or type(timers)
        timers.__class__ = self._telling if phases else self._telling.__base__  # the host's own
        timers._log_level = level
        timers._timers, timers._log_levels = self._levels.setdefault(level, ({}, {}))
        if profile:
            self._profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
            self._profiler.start()


ARMS: dict[str, dict[str, Any]] = {
    OFF: {},
    "on": {"monitor": True},
    "on with phases": {"monitor": True, "phases": True},
    "Megatron level 1": {"level": 1},
    "Megatron level 1, barrier": {"level": 1, "barrier": True},
    "Megatron level 2": {"level": 2},
    "Megatron level 2, barrier": {"level": 2, "barrier": True},
    "torch.profiler, CPU": {"profile": True},
}


def steps_to_train(rounds: int) -> int:
    """Train steps that so many rounds take."""
    return WARMUP + rounds * len(ARMS) * (SETTLE + TIMED) + 1


def schedule(rounds: int, switch: Switch) -> Iterator[str | None]:
    """For each step the arm it is timed for; None where it is not."""
    for _ in range(WARMUP):
        yield None
    order = list(ARMS)
    for _ in range(rounds):
        random.shuffle(order)
        for arm in order:
            switch.set(**ARMS[arm])
            yield from [None] * SETTLE + [arm] * TIMED
    switch.set()
    while True:
        yield None


def timed(
    original: Callable[..., Any], plan: Iterator[str | None], out: list[tuple[str, int]]
) -> Callable[..., Any]:
    """`train_step` that goes through the plan and notes (arm, nanoseconds)."""
    state: dict[str, Any] = {"arm": None, "start_ns": 0}

    def train_step(*args: Any, **kwargs: Any) -> Any:
        end_ns = time.perf_counter_ns()
        if state["arm"] is not None:
            out.append((state["arm"], end_ns - state["start_ns"]))
        state["arm"] = next(plan)
        state["start_ns"] = time.perf_counter_ns()
        return original(*args, **kwargs)

    return train_step


def main() -> None:
    """Trains; see above."""
    from flagscale_perf.hooks import TrainingHooks

    output, rounds, *sys.argv = sys.argv[1:]
    random.seed(0)
    switch, times = Switch(), list[tuple[str, int]]()
    train_start = TrainingHooks.train_start

    def attached(self: TrainingHooks, loop: Any) -> None:
        train_start(self, loop)
        switch.attach(self)

    TrainingHooks.train_start = attached  # type: ignore[method-assign]
    loop: Any = importlib.import_module(LOOP)
    loop.train_step = timed(loop.train_step, schedule(int(rounds), switch), times)
    runpy.run_path(sys.argv[0], run_name="__main__")
    Path(output).write_text(json.dumps(times))


if __name__ == "__main__":
    main()
