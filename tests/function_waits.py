"""A rank whose collectives are called inside of autograd functions, as Megatron's tensor parallelism does it;
see `tests/gloo_ranks.py`. Rank 1 comes late on purpose.

It leaves what its calls took by its own clock, and what its profiled step says of them.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from flagscale_perf.profile.attribution import Attribution
from flagscale_perf.profile.communication import collectives_of
from flagscale_perf.profile.flight import flown, groups
from flagscale_perf.profile.kineto import Range, Session
from flagscale_perf.profile.pieces import Pieces, exposed
from flagscale_perf.profile.ranges import STEP
from flagscale_perf.profile.rows import rows_of

LATE_S = 0.06
took_ns: list[int] = []


def all_reduce(x: torch.Tensor) -> torch.Tensor:
    """Timed by the caller's own clock."""
    if dist.get_rank():
        time.sleep(LATE_S)
    made = x.clone()
    begin_ns = time.monotonic_ns()
    dist.all_reduce(made)
    took_ns.append(time.monotonic_ns() - begin_ns)
    return made


class Summed(torch.autograd.Function):
    """Forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return all_reduce(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return all_reduce(grad)


def main() -> None:
    """As a process."""
    torch.set_num_threads(1)
    directory, rank = Path(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo", init_method=f"file://{directory / 'store'}", rank=rank, world_size=2)
    weight = torch.ones(256, 256, requires_grad=True)

    def step() -> None:
        (Summed.apply(weight @ weight) @ weight).sum().backward()

    step()
    took_ns.clear()
    session = Session()
    dist.barrier()
    session.start()
    with Range(STEP):
        step()
    session.stop()
    events = session.events(10_000_000)
    places = Attribution(events)
    collectives = collectives_of(events, places.nesting, flown(), groups())
    pieces = Pieces.of(events, places, collectives)
    rows = rows_of(events, places, pieces)
    collectives = exposed(collectives, events, places, pieces)
    found = {
        "took_ns": took_ns,
        "communication_ns": rows.parts_ns["communication"],
        "exposed_ns": [each.exposed_ns for each in collectives],
    }
    (directory / f"rank{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
