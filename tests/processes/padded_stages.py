"""Runs a training script with sleeps in every stage's forward and backward, long enough that nothing else
matters.

`padded_stages.py SCRIPT ARGS...`, under `-m flagscale_perf.launch`: the sleeps are inside what the host times
as computing. `PADDED_FORWARD_S` and `PADDED_BACKWARD_S` set the seconds of one.
The rank that the environment calls SLOW_RANK takes a part of them longer in its forward pass.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from collections.abc import Callable
from typing import Any

FORWARD_S, BACKWARD_S = (
    float(os.environ.get(f"PADDED_{name}_S", seconds))
    for name, seconds in (("FORWARD", 0.080), ("BACKWARD", 0.160))
)
EXCESS_S = 0.6 * (FORWARD_S + BACKWARD_S)  # far beyond what a busy machine does to a sleep


def slowed(function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        time.sleep(seconds)
        return function(*args, **kwargs)

    return call


def pad() -> None:
    from megatron.core.pipeline_parallel import schedules

    forward_step = schedules.forward_step
    forward_s = FORWARD_S + (EXCESS_S if os.environ["RANK"] == os.environ.get("SLOW_RANK") else 0)

    def padded_forward_step(forward_step_func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return forward_step(slowed(forward_step_func, forward_s), *args, **kwargs)

    schedules.forward_step = padded_forward_step
    schedules.custom_backward = slowed(
        schedules.custom_backward, BACKWARD_S
    )  # what `backward_step` computes with


if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    pad()
    runpy.run_path(sys.argv[0], run_name="__main__")
