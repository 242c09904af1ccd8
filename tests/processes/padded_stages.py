"""Runs a training script with sleeps in every stage's forward and backward, long enough that nothing else
matters.

`padded_stages.py SCRIPT ARGS...`, under `-m flagscale_perf.launch`: the sleeps are inside what the host times
as computing. `PADDED_FORWARD_S` and `PADDED_BACKWARD_S` set the seconds of one.
The rank that the environment calls SLOW_RANK takes `PADDED_EXCESS_S` longer in its forward pass. What each
rank slept, how long its passes took, and when it came to the messages between stages, it says in `slept.say`.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from collections.abc import Callable
from typing import Any

if __name__ == "__main__":
    from slept import say  # this directory is where scripts are looked for, and "tests" is Megatron's
else:
    from tests.processes.slept import say

FORWARD_S, BACKWARD_S = (
    float(os.environ.get(f"PADDED_{name}_S", seconds))
    for name, seconds in (("FORWARD", 0.080), ("BACKWARD", 0.160))
)
EXCESS_S = float(os.environ.get("PADDED_EXCESS_S", 0.6 * (FORWARD_S + BACKWARD_S)))


def slowed(what: str, function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    """The function, after a sleep of which it says how long it was."""

    def call(*args: Any, **kwargs: Any) -> Any:
        begin_ns = time.monotonic_ns()
        time.sleep(seconds)
        slept_ns = time.monotonic_ns() - begin_ns
        made = function(*args, **kwargs)
        say(what, slept_ns, begin_ns, time.monotonic_ns())
        return made

    return call


def timed(what: Callable[..., str], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which says from when to when it ran; `what` it is follows from its arguments."""

    def call(*args: Any, **kwargs: Any) -> Any:
        begin_ns = time.monotonic_ns()
        made = function(*args, **kwargs)
        say(what(**kwargs), 0, begin_ns, time.monotonic_ns())
        return made

    return call


def message(recv_next: bool = False, tensor_send_prev: object = None, **_: object) -> str:
    """What a message between stages is to the backward pass."""
    return "gets" * recv_next + "sends" * (tensor_send_prev is not None) or "other message"


def pad() -> None:
    from megatron.core.pipeline_parallel import schedules
    from megatron.core.pipeline_parallel.p2p_communication import P2PCommunicator

    forward_step = schedules.forward_step
    forward_s = FORWARD_S + (EXCESS_S if os.environ["RANK"] == os.environ.get("SLOW_RANK") else 0)

    def padded_forward_step(forward_step_func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return forward_step(slowed("forward", forward_step_func, forward_s), *args, **kwargs)

    schedules.forward_step = timed(lambda **_: "pass", padded_forward_step)
    schedules.backward_step = timed(lambda **_: "pass", schedules.backward_step)
    # What `backward_step` computes with.
    schedules.custom_backward = slowed("backward", schedules.custom_backward, BACKWARD_S)
    for name in ("recv_backward", "send_forward_recv_backward"):
        setattr(P2PCommunicator, name, timed(lambda **_: "waits", getattr(P2PCommunicator, name)))
    P2PCommunicator._communicate = timed(message, P2PCommunicator._communicate)


if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    pad()
    runpy.run_path(sys.argv[0], run_name="__main__")
