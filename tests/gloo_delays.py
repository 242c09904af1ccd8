"""A rank of two: rank 1 computes longer, and they meet at each step's end; see `tests/gloo_ranks.py`."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from flagscale_perf.profile.causal import Delay, Experiment

STEPS, WORK_MS = 24, (10, 100)


class Slow(nn.Module):
    """Computes for a while: asleep, so that a busy machine changes little."""

    def __init__(self, ms: float) -> None:
        super().__init__()
        self._ms = ms

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """What it was given."""
        time.sleep(self._ms / 1000)
        return given


def main(directory: Path, rank: int, text: str) -> None:
    """Writes the effect, on the delayed rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=2)
    model = nn.Sequential(Slow(WORK_MS[rank]))
    experiment = Experiment(model, Delay.parse(text), rank)
    for _ in range(STEPS):
        experiment.begin_step()
        dist.all_reduce(model(torch.ones(8)))
        experiment.end_step()
    experiment.close()
    effect = experiment.effect()
    (directory / f"rank{rank}.json").write_text(json.dumps(None if effect is None else asdict(effect)))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
