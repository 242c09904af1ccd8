"""A rank with planted waiting: a straggler, or stages of a pipeline; see `tests/gloo_ranks.py`.

Besides what is measured, each rank says itself when it came to each operation: that is the truth, whatever a
busy machine does to it.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from flagscale_perf.profile.attribution import Attribution
from flagscale_perf.profile.communication import collectives_of, numbered
from flagscale_perf.profile.flight import flown, groups
from flagscale_perf.profile.kineto import Range, Session
from flagscale_perf.profile.pieces import Pieces, exposed
from flagscale_perf.profile.ranges import STEP

PLANTED_MS = (0, 5, 20, 80)
EACH = 15
FLOATS = 4_000_000
FORWARD, BACKWARD = "forward", "backward"


def schedule(stage: int, stages: int, microbatches: int) -> Iterator[str]:
    """One forward, one backward, with as much ahead as the stages behind this one need."""
    ahead = min(microbatches, stages - 1 - stage)
    yield from [FORWARD] * ahead
    for number in range(microbatches):
        if number + ahead < microbatches:
            yield FORWARD
        yield BACKWARD


def stragglers(rank: int) -> list[tuple[int, int, int]]:
    """All-reduces of 16 MB, before which rank 1 comes late on purpose: what was planted, in ms, when this
    rank came, and when it had the result.
    """
    order = list(PLANTED_MS) * EACH
    random.Random(5).shuffle(order)
    said = []
    for planted in order:
        values = torch.ones(FLOATS)
        dist.barrier()
        if rank == 1 and planted:
            time.sleep(planted / 1000)
        came_ns = time.monotonic_ns()
        dist.all_reduce(values)
        said.append((planted, came_ns, time.monotonic_ns()))
    return said


@dataclass
class Stage:
    """One of several stages whose computing is sleep.

    Attributes:
        times_ms: of a forward and a backward pass.
        slept_ns: of each pass, in their order; a list for each step.
        came_ns: when this rank began to receive, and when it sent, what each pass needs and makes; None where
            there is no such message. A list for each step.
        steps_ns: time of each step.
    """

    rank: int
    stages: int
    times_ms: tuple[float, float]
    slept_ns: list[list[int]] = field(default_factory=list)
    came_ns: list[list[tuple[str, int | None, int | None]]] = field(default_factory=list)
    steps_ns: list[int] = field(default_factory=list)

    def step(self, microbatches: int) -> None:
        """All its passes, between two barriers."""
        sent: list[tuple[Any, torch.Tensor]] = []
        self.slept_ns.append([])
        self.came_ns.append([])
        dist.barrier()
        begin_ns = time.monotonic_ns()
        for which in schedule(self.rank, self.stages, microbatches):
            self._pass(which, sent)
        dist.barrier()
        self.steps_ns.append(time.monotonic_ns() - begin_ns)
        for work, _ in sent:
            work.wait()

    def _pass(self, which: str, sent: list[tuple[Any, torch.Tensor]]) -> None:
        forward = which == FORWARD
        source, target = self.rank - (1 if forward else -1), self.rank + (1 if forward else -1)
        received_ns = sent_ns = None
        if 0 <= source < self.stages:
            received_ns = time.monotonic_ns()
            dist.recv(torch.empty(16), source)
        begin_ns = time.monotonic_ns()
        time.sleep(self.times_ms[0 if forward else 1] / 1000)
        self.slept_ns[-1].append(time.monotonic_ns() - begin_ns)
        if 0 <= target < self.stages:
            made, sent_ns = torch.ones(16), time.monotonic_ns()
            sent.append((dist.isend(made, target), made))
        self.came_ns[-1].append((which, received_ns, sent_ns))


def pipeline(stage: Stage, microbatches: list[int]) -> dict[str, Any]:
    """A step of each; what the stage says of them."""
    for each in microbatches:
        stage.step(each)
    return {"came_ns": stage.came_ns, "slept_ns": stage.slept_ns, "steps_ns": stage.steps_ns}


def records(run: Callable[[], Any], shapes: bool = False) -> tuple[list[dict[str, Any]], Any]:
    """Fields of a `CollectiveRecord` of each operation, and what `run` returns. A step ends with its second
    barrier. `shapes`: whom a message is for is an argument, which the profiler only keeps with these.
    """
    session = Session(shapes=shapes)
    dist.barrier()
    session.start()
    with Range(STEP):
        said = run()
    session.stop()
    events = session.events(10_000_000)
    places = Attribution(events)
    collectives = collectives_of(events, places.nesting, flown(), groups())
    collectives = exposed(collectives, events, places, Pieces.of(events, places, collectives))
    found, barriers = [], 0
    for each in numbered(collectives):
        barriers += each.operation == "barrier"
        step = {"window": 1, "step": (barriers + 1) // 2, "phase": "", "module": ""}
        found.append({**step, **asdict(each)})
    return found, said


def main(directory: Path, rank: int, what: str, count: str = "2", *more: str) -> None:
    """Writes the records of a run and what was planted. `more`: of a pipeline, the microbatches of each step,
    and the milliseconds of all stages' forward passes, then of their backward passes.
    """
    stages = int(count)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=stages)
    if what == "stragglers":
        found, said = records(lambda: stragglers(rank))
    else:
        microbatches, times = [int(each) for each in more[0].split(",")], [float(each) for each in more[1:]]
        pipeline(Stage(rank, stages, (0, 0)), [stages])
        stage = Stage(rank, stages, (times[rank], times[stages + rank]))
        found, said = records(lambda: pipeline(stage, microbatches), shapes=stages > 2)
    (directory / f"rank{rank}.json").write_text(json.dumps({"collectives": found, "said": said}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
