"""Runs a training script of which one rank hangs in several ways, each until a file is there.

`hanging.py SCRIPT ARGS...`, under `-m flagscale_perf.launch`. HANG_PLAN names ways and calls, such as
`elsewhere@6 loader@10`; HANG_RANK hangs so until the file `go_WAY` is in the directory. `saving` and
`evaluating` are long and no hang, and of every rank.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

POLL_S = 0.05


def until_there(way: str) -> None:
    while not Path(f"go_{way}").exists():
        time.sleep(POLL_S)


def elsewhere() -> None:
    """Does something else, and does not come to the collective of its peers."""
    until_there("elsewhere")


class Loader:
    """Waits for a worker that sends nothing."""

    def __next__(self) -> None:
        until_there("loader")


def loader() -> None:
    next(Loader())


def locked() -> None:
    """Two threads, each of which has the lock that the other one wants."""
    mine, theirs, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def holder() -> None:
        with theirs:
            both.wait()
            while not mine.acquire(timeout=POLL_S) and not Path("go_locked").exists():
                pass

    threading.Thread(target=holder, name="holder", daemon=True).start()
    with mine:
        both.wait()
        theirs.acquire()


def saving() -> None:
    until_there("saving")


def evaluating() -> None:
    until_there("evaluating")


# Way -> before which function it happens, and what happens.
WAYS: dict[str, tuple[str, str, Callable[[], None]]] = {
    "elsewhere": ("megatron.core.models.gpt.gpt_model", "GPTModel.forward", elsewhere),
    "locked": ("megatron.core.models.gpt.gpt_model", "GPTModel.forward", locked),
    "loader": ("megatron.training.utils", "get_batch_on_this_tp_rank", loader),
    "saving": ("flagscale.train.train", "save_checkpoint", saving),
    "evaluating": ("megatron.training.training", "evaluate", evaluating),
}


def hanging(function: Callable[..., Any], call_number: int, way: Callable[[], None]) -> Callable[..., Any]:
    """The function, before one call of which something else comes."""
    calls = 0

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call_number:
            way()
        return function(*args, **kwargs)

    return call


def plant() -> None:
    for word in os.environ.get("HANG_PLAN", "").split():
        name, _, number = word.partition("@")
        module_name, function, way = WAYS[name]
        if name in ("saving", "evaluating") or os.environ["RANK"] == os.environ["HANG_RANK"]:
            owner = importlib.import_module(module_name)
            *outer, function = function.split(".")
            for each in outer:
                owner = getattr(owner, each)
            setattr(owner, function, hanging(getattr(owner, function), int(number), way))


if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    plant()
    runpy.run_path(sys.argv[0], run_name="__main__")
