"""A rank of two that is profiled and then delayed on purpose: rank 1 computes longer, and they meet at each
step's end; see `tests/gloo_ranks.py`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from flagscale_perf.profile.options import ProfileOptions, Steps
from flagscale_perf.profile.profiler import Profiler
from flagscale_perf.profile.schedule import Schedule
from flagscale_perf.spine.delays import Delays

WORK_MS = "5/45"  # of each rank


class Slow(nn.Module):
    """Computes for a while: asleep, so that a busy machine changes little."""

    def __init__(self, ms: float) -> None:
        super().__init__()
        self._ms = ms
        self.inner = nn.Linear(8, 8)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """A product, after a while."""
        time.sleep(self._ms / 1000)
        made: torch.Tensor = self.inner(given)
        return made


def main(directory: Path, rank: int, text: str, work_ms: str = WORK_MS) -> None:
    """Leaves a run file, and how many hooks there were in the middle and at the end."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.Sequential(Slow(float(work_ms.split("/")[rank])))
    options = ProfileOptions(Steps(1, 3), directory / "profile", causal=Delays.parse(text))
    schedule = Schedule.of(options)
    assert schedule is not None and options.causal is not None
    hooks, made = [], []
    with Profiler(model, options) as profiler:
        for iteration in range(1, schedule.causal_first + options.causal.length + 1):
            with profiler.step(iteration):
                given = model(torch.ones(8))
                dist.all_reduce(given)
                made.append(given.sum().item())
                hooks.append(sum(len(module._forward_pre_hooks) for module in model.modules()))
    said = {"middle": hooks[schedule.causal_first], "end": hooks[-1], "results": sorted(set(made))}
    (directory / f"rank{rank}.json").write_text(json.dumps(said))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
