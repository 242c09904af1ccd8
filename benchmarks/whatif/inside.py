"""Runs a training script whose layers sleep, with what is planted in it, on each rank.

`inside.py PLAN SCRIPT ARGS...`, under `-m flagscale_perf.launch`; PLAN is a file with a `Training` as JSON.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.slow_training.inside import CORE, OWNERS, RANK, before, run, slow_forward, step_now, wrap
from benchmarks.whatif.plans import BACKWARD_MS, FORWARD_MS, Plant, Training

Function = Callable[..., Any]
BEFORE_STEP = "megatron.training.ft_integration", "", "on_training_step_start"  # on all ranks, each time


def pad(training: Training) -> None:
    """Each layer takes so long, forward and backward."""
    import torch

    forward_s = training.forward_ms / 1e3
    backward_s = forward_s * BACKWARD_MS / FORWARD_MS

    class Slept(torch.autograd.Function):
        """The identity, after a sleep."""

        @staticmethod
        def forward(ctx: Any, hidden: Any) -> Any:
            time.sleep(forward_s)
            return hidden.view_as(hidden)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            time.sleep(backward_s)
            return grad

    def make(function: Function) -> Function:
        return lambda layer, hidden_states, *args, **kwargs: function(
            layer, Slept.apply(hidden_states), *args, **kwargs
        )

    wrap(f"{CORE}.transformer.transformer_layer", "TransformerLayer", "forward", make)


class Lateness:
    """Sleeps where a plant is on."""

    def __init__(self, plant: Plant, training: Training) -> None:
        self._plant, self._training = plant, training

    def __call__(self, *_: object) -> None:
        if self._plant is self._training.late or self._training.state(step_now()) == self._plant.name:
            time.sleep(self._plant.ms / 1e3)


def plant(each: Plant, training: Training) -> None:
    """Where it belongs, on its rank."""
    late = Lateness(each, training)
    if each.part == "forward":
        slow_forward(late)
    elif each.part == "optimizer":
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        register_optimizer_step_pre_hook(late)
    elif each.part == "send":
        wrap(f"{CORE}.pipeline_parallel.p2p_communication", "P2PCommunicator", "_communicate", sends(late))
    elif each.part == "between":
        wrap(*BEFORE_STEP, lambda function: before(late, function))
    else:
        wrap(*OWNERS[each.part], lambda function: before(late, function))


def sends(late: Lateness) -> Callable[[Function], Function]:
    """A link that is slow: of what this rank sends."""

    def make(function: Function) -> Function:
        def communicate(*args: Any, **kwargs: Any) -> Any:
            if kwargs["tensor_send_next"] is not None or kwargs["tensor_send_prev"] is not None:
                late()
            return function(*args, **kwargs)

        return communicate

    return make


def training_of(content: dict[str, Any]) -> Training:
    """As `record.py` writes it."""
    plants = tuple(Plant(**each) for each in content["plants"])
    late = Plant(**content["late"]) if content["late"] else None
    return Training(**content | {"layers": tuple(content["layers"]), "plants": plants, "late": late})


def plant_all(training: Training) -> None:
    """All of it, on this rank."""
    pad(training)
    for each in [*training.plants, *([training.late] if training.late else [])]:
        if each.is_of(RANK, training.replicas):
            plant(each, training)


if __name__ == "__main__":
    run(sys.argv[1:], lambda found: plant_all(training_of(found)))
