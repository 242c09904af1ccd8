"""Starts a host's training script with its steps counted, and says what they should be."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from flagscale_perf.flops_calculator import ModelShape, count, step_flops
from tests.processes import flagscale as fs

REPO = Path(__file__).parents[2]
MONITOR = ["--enable-perf-monitor", "--perf-log-dir", "perf"]
Counts = list[dict[str, Any]]


def flags(args: dict[str, Any]) -> list[str]:
    """Arguments as words of a command line."""
    return [word for name, value in args.items() for word in ("--" + name.replace("_", "-"), str(value))]


def megatron_path() -> str:
    """PYTHONPATH of Megatron-LM as FlagScale brings it along; its packages have a folder `tests`, too."""
    return os.pathsep.join(map(str, (REPO, fs.root(), fs.root() / "third_party" / "Megatron-LM")))


def bridge_path() -> str:
    """PYTHONPATH of Megatron-Bridge and the newer Megatron-Core, with the small script's folder."""
    share, small = Path(sys.prefix) / "share", REPO / "tests" / "processes" / "bridge"
    return os.pathsep.join(map(str, (REPO, share / "megatron-bridge", share / "megatron-core", small)))


def train(directory: Path, words: list[Any], path: str, **env: str) -> Counts:
    """Runs one rank in `directory`; what every step multiplied, part by part, which the run writes there."""
    finished = fs.run(fs.workers(1, *fs.launched(*words)), directory, PYTHONPATH=path, **env)
    assert finished.returncode == 0, finished.output[-4000:]
    return [json.loads(line) for line in (directory / "0").read_text().splitlines()]


def train_megatron(directory: Path, script: str, words: list[Any]) -> Counts:
    """The same of one of Megatron-LM's own scripts."""
    place = fs.root() / "third_party" / "Megatron-LM" / script
    counted = Path(__file__).with_name("counted_components.py")
    return train(directory, [counted, directory, place, *words, "--tensorboard-dir", "tb"], megatron_path())


def expected(shape: ModelShape, batch: int, length: int) -> dict[str, Any]:
    """What the formulas say of one step, as it is counted."""
    parts = count(shape, batch, length).components
    phases = {
        name: {phase: part[phase] for phase in ("fwd", "bwd", "recompute")} for name, part in parts.items()
    }
    return phases | {"unattributed": 0}


def assert_recorded(directory: Path, shape: ModelShape, batch: int, length: int) -> None:
    """The monitor's records of every step are the formulas'."""
    steps = [(step["model_flops"], step["hardware_flops"]) for step in fs.records(directory / "perf")]
    assert steps and set(steps) == {tuple(step_flops(shape, batch, length))}
