"""Runs a training script with sleeps in parts of it, long enough that nothing else matters.

`slowed_parts.py PLANTS SCRIPT ARGS...`, under `-m flagscale_perf.launch`. PLANTS are joined by commas, each
PART:SECONDS[:WHEN[:RANK]]. PART is a phase of the monitor,
"train_step", "sample" (each one loaded) or "checkpoint". WHEN:

calls (the default): in every call of the part, a micro-batch each for forward, backward and data_loading.
steps: once in every step.
every N: once in every Nth step.
bursts: once in each of five steps, at uneven distances.
until N: once in every step before the Nth, without the first.
growing N: once in every step, from nothing in the first to SECONDS in the Nth.
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

    def __init__(self, seconds: float, when: str) -> None:
        self._seconds = seconds
        self._kind, _, number = when.partition(" ")
        self._number = int(number or 1)
        self._last = -1

    def __call__(self) -> None:
        if self._kind == "calls":
            time.sleep(self._seconds)
            return
        from megatron.training import get_args

        step = getattr(get_args(), "curr_iteration", -1) + 1  # the host's count begins with 0
        if step > 0 and step != self._last:
            self._last = step
            time.sleep(self._seconds * self._part(step))

    def _part(self, step: int) -> float:
        if self._kind == "growing":
            return min(1.0, step / self._number)
        if self._kind == "every":
            return float(step % self._number == 0)
        if self._kind == "until":
            return float(1 < step < self._number)
        return float(self._kind == "steps" or step in BURSTS)


def after(sleep: Sleep, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        sleep()
        return function(*args, **kwargs)

    return call


def plant(part: str, seconds: float, when: str = "calls", rank: str = "") -> None:
    if rank and rank != os.environ["RANK"]:
        return
    sleep = Sleep(seconds, when)
    if part == "forward":
        from megatron.core.pipeline_parallel import schedules

        forward_step = schedules.forward_step
        schedules.forward_step = lambda step, *args, **kwargs: forward_step(
            after(sleep, step), *args, **kwargs
        )
    elif part == "optimizer_inner_step":
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        register_optimizer_step_pre_hook(lambda *_: sleep())
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
