"""Runs a training script whose collectives are timed by the caller's own clock.

`timed_collectives.py SCRIPT ARGS...`, under `-m flagscale_perf.launch`. In `timed_RANK.json` each rank leaves
each call of a collective and each wait for one: what it is of, its begin and end, monotonic, in ns; and for
how long of that, and of the time since the one before, the thread was ready to run and had no processor.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import runpy
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Work

OPERATIONS = {
    "all_reduce": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "broadcast": "broadcast",
    "reduce_scatter_tensor": "reduce_scatter",
    "barrier": "barrier",
}
COALESCED = "coalesced"  # what is waited for by a manager of torch has no name
took: list[tuple[str, int, int, int, int]] = []
asked: dict[int, tuple[str, Any]] = {}  # what is not waited for yet, by its id
depth = 0
delay_before_ns = 0


def delay_ns() -> int:
    """For how long this thread was ready to run and did not."""
    with open("/proc/thread-self/schedstat") as file:
        return int(file.read().split()[1])


@contextlib.contextmanager
def clock(name: str) -> Iterator[None]:
    """Of the outermost call."""
    global depth, delay_before_ns
    depth += 1
    before_ns, begin_ns = delay_ns(), time.monotonic_ns()
    try:
        yield
    finally:
        end_ns = time.monotonic_ns()
        depth -= 1
        if not depth:
            delay_after_ns = delay_ns()
            took.append((name, begin_ns, end_ns, delay_after_ns - before_ns, before_ns - delay_before_ns))
            delay_before_ns = delay_after_ns


def timed(function: Callable[..., Any], operation: str) -> Callable[..., Any]:
    """Its name is the group's description and the operation."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        groups = [one.group_desc for one in (*args, *kwargs.values()) if hasattr(one, "group_desc")]
        name = f"{groups[0] if groups else ''} {operation}"
        with clock(name):
            made = function(*args, **kwargs)
        if isinstance(made, Work):
            asked[id(made)] = name, made
        return made

    return call


def waited(wait: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(wait)
    def call(work: Any, *args: Any) -> Any:
        with clock(asked.pop(id(work), (COALESCED, None))[0]):
            return wait(work, *args)

    return call


def managed(manager: Callable[..., Any]) -> Callable[..., Any]:
    """Its end asks for all that was called in it."""

    @contextlib.contextmanager
    def call(*args: Any, **kwargs: Any) -> Iterator[Any]:
        made = manager(*args, **kwargs)
        yield made.__enter__()
        with clock(COALESCED):
            made.__exit__(None, None, None)

    return call


def main() -> None:
    del sys.argv[0], sys.path[0]  # this directory has a flagscale.py
    for name, operation in OPERATIONS.items():
        made = timed(getattr(dist, name), operation)
        setattr(dist, name, made)
        setattr(dist.distributed_c10d, name, made)
    dist._coalescing_manager = dist.distributed_c10d._coalescing_manager = managed(dist._coalescing_manager)  # type: ignore[attr-defined]
    Work.wait = waited(Work.wait)  # type: ignore[method-assign]
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        with open(f"timed_{os.environ['RANK']}.json", "w") as file:
            json.dump(took, file)


if __name__ == "__main__":
    main()
