"""A configuration whose training script is a stand-in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    """A whole two-level configuration. Its FlagScale has empty directories and an empty training script."""
    root = tmp_path / "FlagScale"
    (root / "flagscale" / "train").mkdir(parents=True)
    (root / "flagscale" / "train" / "train_gpt.py").write_text("")
    (root / "third_party" / "Megatron-LM" / "megatron" / "training").mkdir(parents=True)
    return {
        "action": "run",
        "experiment": {
            "exp_dir": str(tmp_path / "exp"),
            "task": {
                "type": "train",
                "backend": "megatron",
                "flagscale_root": str(root),
                "python": "/usr/bin/python3",
            },
            "runner": {
                "type": "ssh",
                "backend": "torchrun",
                "nnodes": 1,
                "nproc_per_node": 2,
                "hostfile": None,
                "background": False,
            },
            "envs": {},
            "cmds": {"before_start": None},
        },
        "train": {
            "system": {"enable_perf_monitor": True, "tensorboard_dir": None},
            "model": {"num_layers": 2},
            "data": {},
        },
    }
