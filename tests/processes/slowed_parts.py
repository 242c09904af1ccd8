"""Runs a training script with sleeps in parts of it, long enough that nothing else matters.

`slowed_parts.py PLANTS SCRIPT ARGS...`, under `-m flagscale_perf.launch`. PLANTS are joined by commas, each
PART:SECONDS[:WHEN[:RANK]]. PART is a phase of the monitor,
"train_step", "sample" (each one loaded) or "checkpoint". WHEN:

calls (the default): in every call of the part, a micro-batch each for forward, backward and data_loading.
calls N-M: the same in steps N to M only.
steps: once in every step.
steps N-M: once in each of these.
every N: once in every Nth step.
bursts: once in each of five steps, at uneven distances.
until N: once in every step before the Nth, without the first.
growing N: once in every step, from nothing in the first to SECONDS in the Nth.

"pace:SECONDS" is another kind: a train step takes at least so long, whatever a busy machine does to a shorter
one. It and "train_step" come last: they import the host's loop, which others change before.

What was slept, and from when to when the part ran, each rank says in `slept.say`.
"""

from __future__ import annotations

import functools
import os
import runpy
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

if __name__ == "__main__":
    from slept import say  # this directory is where scripts are looked for, and "tests" is Megatron's
else:
    from tests.processes.slept import say

OWNERS = {
    "sample": ("megatron.core.datasets.gpt_dataset", "GPTDataset", "__getitem__"),
    "train_step": ("flagscale.train.train", "", "train_step"),
    "checkpoint": ("megatron.training.checkpointing", "", "save_checkpoint"),
    "data_loading": ("megatron.training.utils", "", "get_batch_on_this_tp_rank"),
    "backward": ("megatron.core.pipeline_parallel.schedules", "", "custom_backward"),
    "exposed_grad_comm": (
        "megatron.core.distributed.distributed_data_parallel",
        "DistributedDataParallel",
        "finish_grad_sync",
    ),
    "exposed_stat_comm": (
        "megatron.core.rerun_state_machine",
        "RerunStateMachine",
        "should_run_forward_backward",
    ),
    "zero_grad": (
        "megatron.core.distributed.distributed_data_parallel",
        "DistributedDataParallel",
        "zero_grad_buffer",
    ),
    "optimizer": ("megatron.core.optimizer.optimizer", "ChainedOptimizer", "step"),
    "forward_backward_other": ("megatron.core.distributed", "", "finalize_model_grads"),
    "other": ("megatron.core.rerun_state_machine", "RerunStateMachine", "should_checkpoint_and_exit"),
    "between_steps": ("megatron.training.utils", "", "print_rank_last"),
}
BURST_STEPS = 5
BURSTS = tuple(start + step for start in (40, 62, 71, 99, 137) for step in range(BURST_STEPS))


class Sleep:
    """When a plant sleeps."""

    def __init__(self, part: str, seconds: float, when: str) -> None:
        self.part = part
        self._seconds = seconds
        self._kind, _, number = when.partition(" ")
        first, is_range, last = number.partition("-")
        self._steps = range(int(first), int(last) + 1) if is_range else range(sys.maxsize)
        self._number = 1 if is_range else int(number or 1)
        self._last = -1

    def __call__(self) -> int:
        """Sleeps, if it is time to; for how many nanoseconds."""
        if self._kind == "calls" and len(self._steps) == sys.maxsize:
            return self._sleep(1.0)
        from megatron.training import get_args

        step = getattr(get_args(), "curr_iteration", -1) + 1  # the host's count begins with 0
        is_new, self._last = step > 0 and step != self._last, step
        return self._sleep(self._part(step)) if is_new or self._kind == "calls" else 0

    def _sleep(self, part: float) -> int:
        begin_ns = time.monotonic_ns()
        time.sleep(self._seconds * part)
        return time.monotonic_ns() - begin_ns if part else 0

    def _part(self, step: int) -> float:
        if self._kind == "growing":
            return min(1.0, step / self._number)
        if self._kind == "every":
            return float(step % self._number == 0)
        if self._kind == "until":
            return float(1 < step < self._number)
        return float(step in (BURSTS if self._kind == "bursts" else self._steps))


def after(sleep: Sleep, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        begin_ns = time.monotonic_ns()
        slept_ns = sleep()
        made = function(*args, **kwargs)
        if slept_ns:
            say(sleep.part, slept_ns, begin_ns, time.monotonic_ns())
        return made

    return call


def paced(seconds: float, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        until = time.monotonic() + seconds
        made = function(*args, **kwargs)
        time.sleep(max(0.0, until - time.monotonic()))
        return made

    return call


def plant(part: str, seconds: float, when: str = "calls", rank: str = "") -> None:
    if rank and rank != os.environ["RANK"]:
        return
    if part == "pace":
        training = import_module("flagscale.train.train")
        training.train_step = paced(seconds, training.train_step)  # type: ignore[attr-defined]
        return
    sleep = Sleep(part, seconds, when)
    if part == "forward":
        from megatron.core.pipeline_parallel import schedules

        forward_step = schedules.forward_step
        schedules.forward_step = lambda step, *args, **kwargs: forward_step(
            after(sleep, step), *args, **kwargs
        )
    elif part == "optimizer_inner_step":
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        hook = after(sleep, lambda *_: None)
        register_optimizer_step_pre_hook(lambda *_: hook())
    else:
        module, owner_name, name = OWNERS[part]
        owner = import_module(module)
        owner = getattr(owner, owner_name) if owner_name else owner
        setattr(owner, name, after(sleep, getattr(owner, name)))


def main() -> None:
    _, plants, *sys.argv = sys.argv
    del sys.path[0]  # this directory has a flagscale.py
    for words in filter(None, plants.split(",")):
        part, seconds, *rest = words.split(":")
        plant(part, float(seconds), *rest)
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
