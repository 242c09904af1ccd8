"""A rank of two with planted waiting: a straggler, or stages of a pipeline; see `tests/gloo_ranks.py`."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from flagscale_perf.profile.collectives import numbered
from flagscale_perf.profile.communication import collectives_of
from flagscale_perf.profile.events import Nesting
from flagscale_perf.profile.flight import flown, groups
from flagscale_perf.profile.kineto import Session

PLANTED_MS = (0, 5, 20, 80)
EACH = 15
FLOATS = 1_000_000
MICROBATCHES, STEPS = 4, 6


def stragglers(rank: int) -> list[tuple[int, int]]:
    """All-reduces of 4 MB, before which rank 1 comes late on purpose: what was planted, in ms, and how long
    that took. Nothing is planted twice as often, to see what the machine itself does.
    """
    order = [0, *PLANTED_MS] * EACH
    random.Random(5).shuffle(order)
    said = []
    for planted in order:
        values = torch.ones(FLOATS)
        dist.barrier()
        begin_ns = time.perf_counter_ns()
        if rank == 1 and planted:
            time.sleep(planted / 1000)
        said.append((planted, time.perf_counter_ns() - begin_ns))
        dist.all_reduce(values)
    return said


@dataclass
class Stage:
    """One of two stages whose computing is sleep.

    Attributes:
        slept_ns: of each forward or backward pass, in their order; of all steps.
        steps_ns: time of each step.
    """

    rank: int
    forward_ms: float
    backward_ms: float
    slept_ns: list[int] = field(default_factory=list)
    steps_ns: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sent: list[tuple[Any, torch.Tensor]] = []

    def step(self) -> None:
        """One forward, one backward, with as much ahead as the stages after this one need."""
        dist.barrier()
        begin_ns = time.perf_counter_ns()
        ahead = 1 - self.rank
        for _ in range(ahead):
            self._pass(True)
        for number in range(MICROBATCHES):
            if number + ahead < MICROBATCHES:
                self._pass(True)
            self._pass(False)
        dist.barrier()
        self.steps_ns.append(time.perf_counter_ns() - begin_ns)
        for work, _ in self._sent:
            work.wait()
        self._sent.clear()

    def _pass(self, is_forward: bool) -> None:
        receives = is_forward == (self.rank == 1)
        if receives:
            dist.recv(torch.empty(16), 1 - self.rank)
        begin_ns = time.perf_counter_ns()
        time.sleep((self.forward_ms if is_forward else self.backward_ms) / 1000)
        self.slept_ns.append(time.perf_counter_ns() - begin_ns)
        if not receives:
            made = torch.ones(16)
            self._sent.append((dist.isend(made, 1 - self.rank), made))


def pipeline(stage: Stage) -> dict[str, list[int]]:
    """All steps; what was slept, and how long each step took."""
    for _ in range(STEPS):
        stage.step()
    return {"slept_ns": stage.slept_ns, "steps_ns": stage.steps_ns}


def records(run: Callable[[], Any]) -> tuple[list[dict[str, Any]], Any]:
    """Fields of a `CollectiveRecord` of each operation, and what `run` returns. A step ends with its second
    barrier.
    """
    session = Session()
    dist.barrier()
    session.start()
    said = run()
    session.stop()
    events = session.events(10_000_000)
    found, barriers = [], 0
    for each in numbered(collectives_of(events, Nesting.of(events), flown(), groups())):
        barriers += each.operation == "barrier"
        step = {"window": 1, "step": (barriers + 1) // 2, "phase": "", "module": ""}
        found.append({**step, **asdict(each)})
    return found, said


def main(directory: Path, rank: int, what: str, *times: str) -> None:
    """Writes the records of a run and what was planted."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=2)
    if what == "stragglers":
        found, said = records(lambda: stragglers(rank))
    else:
        forward, backward = (float(each) for each in (times[rank], times[2 + rank]))
        pipeline(Stage(rank, 0, 0))
        found, said = records(lambda: pipeline(Stage(rank, forward, backward)))
    (directory / f"rank{rank}.json").write_text(json.dumps({"collectives": found, "said": said}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
