"""Runs a training script with a counter on every function of torch.cuda and torch.distributed and on what
waits for a device.

`counted_calls.py SCRIPT ARGS...`, under `-m flagscale_perf.launch`; at the end each rank writes
`calls_<rank>.json`.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import runpy
import sys
from collections import Counter
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

WAITING = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__")
calls: Counter[str] = Counter()


def counted(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return function(*args, **kwargs)

    return call


def count(module: ModuleType, place: str) -> None:
    for name, value in list(vars(module).items()):
        if isinstance(value, FunctionType) and not name.startswith("_"):
            setattr(module, name, counted(value, f"{place}.{name}"))


def count_all() -> None:
    import torch
    import torch.distributed

    for module in (torch.cuda, torch.distributed):
        count(module, module.__name__)
    for name in WAITING:
        setattr(torch.Tensor, name, counted(getattr(torch.Tensor, name), f"Tensor.{name}"))
    atexit.register(write)


def write() -> None:
    with open(f"calls_{os.environ['RANK']}.json", "w", encoding="utf-8") as file:
        json.dump(calls, file)


if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    count_all()
    runpy.run_path(sys.argv[0], run_name="__main__")
