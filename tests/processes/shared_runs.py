"""Runs of the real FlagScale that several files of tests read: each is made once in a session of pytest, by
the first test that asks for it, in whichever process that runs.

They are in five shapes, each without and with the monitor. What a test wants switched on, and what changes no
other's claim, is switched on in one of them.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from tests.processes import flagscale as fs

ITERATIONS, SAVE_EVERY = 10, 5
COUNTED_CALLS = Path(__file__).with_name("counted_calls.py")
PEAK_TFLOPS = "gpu=400,cpu=0.5"


@dataclass(frozen=True)
class Shape:
    """A way to train.

    Attributes:
        ranks: processes.
        arguments: of the host.
        monitor: what is switched on beside the phases.
        before: a script that runs the training's.
    """

    ranks: int
    arguments: Sequence[object]
    monitor: Sequence[object] = ()
    before: Sequence[object] = ()


RECOMPUTE = (
    *("--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", 1),
)
SAVE = ("--save", "ckpt", "--save-interval", SAVE_EVERY, "--ckpt-format", "torch")
EXPERTS = ("--num-experts", 4, "--moe-router-topk", 2, "--expert-model-parallel-size", 2)
SHAPES = {
    # with as many processes that load data as the host has unasked; every interval is above this peak
    "1 rank": Shape(
        1,
        (*fs.LLAMA, *SAVE, "--num-workers", 2),
        ("--perf-peak-tflops", "0.00001", "--perf-columns", "tokens_per_s,mfu,hfu"),
    ),
    "TP2": Shape(
        2,
        ("--tensor-model-parallel-size", 2, *RECOMPUTE),
        (
            "--perf-console-output",
            "--perf-memory-tracking",
            "false",
            "--perf-peak-tflops",
            PEAK_TFLOPS,
            "--tensorboard",
        ),
    ),
    "PP2": Shape(2, ("--pipeline-model-parallel-size", 2)),
    "DP2": Shape(2, SAVE, before=(COUNTED_CALLS,)),
    # far more steps are to be captured than it has
    "MoE EP2": Shape(2, ("--disable-bias-linear", *EXPERTS), ("--perf-capture-steps", 1000)),
}
MONITOR = (
    *("--enable-perf-monitor", "--perf-breakdown", "--perf-max-overhead", 100, "--perf-log-interval", 4),
    *("--perf-log-dir", "perf"),
)


@dataclass(frozen=True)
class Shared:
    """A run that has ended.

    Attributes:
        directory: its working directory: the host's curves are in "tb", its checkpoints in "ckpt", the
            monitor's files in "perf".
        finished: what it printed.
    """

    directory: Path
    finished: fs.Finished


def without(factory: pytest.TempPathFactory, shape: str) -> Shared:
    """The shape's run without the monitor."""
    return _once(factory, shape, ())


def with_monitor(factory: pytest.TempPathFactory, shape: str) -> Shared:
    """The shape's run with it."""
    return _once(factory, shape, (*MONITOR, *SHAPES[shape].monitor))


def _once(factory: pytest.TempPathFactory, name: str, monitor: Sequence[object]) -> Shared:
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    directory = base / f"{name} {'with' if monitor else 'without'}"
    ended = directory / "finished.json"
    with open(base / f"{directory.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ended.exists():
            directory.mkdir()
            ended.write_text(json.dumps(asdict(_train(SHAPES[name], directory, monitor))))
    finished = fs.Finished(**json.loads(ended.read_text()))
    assert finished.returncode == 0, finished.output[-3000:]
    return Shared(directory, finished)


def _train(shape: Shape, directory: Path, monitor: Sequence[object]) -> fs.Finished:
    host = (*fs.SMALL, *shape.arguments, "--train-iters", ITERATIONS, "--tensorboard-dir", "tb")
    words = fs.launched(*map(str, (*shape.before, fs.train_gpt(), *host, *monitor)))
    return fs.run(fs.workers(shape.ranks, *words), directory)
