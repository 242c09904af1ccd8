"""Run files of trainings whose steps were captured, of schedules that are made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import Record
from flagscale_perf.training.phases import ONE_F_ONE_B
from flagscale_perf.training.rank_records import NodeRecord
from flagscale_perf.training.records import CaptureRecord
from tests.fakes import make_facts, make_header, make_step
from tests.pipelines import Schedule

ARGUMENTS = {"overlap_grad_reduce": False, "num_layers": 8}
SAMPLES, TOKENS = 16, 2048


def evenly(stages: int = 2, replicas: int = 2, batches: int = 4, steps: int = 9) -> Schedule:
    """Forward passes of 20 ms, backward passes of 40 ms, an optimizer of 5 ms."""
    schedule = Schedule(stages, replicas, batches, seed=3, has_room=False, steps=steps)
    usual = {"forward": 20, "backward": 40, "optimizer_inner_step": 5}
    schedule.times = {where: usual[where[1]] * 10**6 for where in schedule.times}
    return schedule


def make_late(schedule: Schedule, rank: int, by_ms: int, phase: str = "forward") -> Schedule:
    """The rank takes so much longer in each pass."""
    for where in schedule.times:
        if (where[0], where[1]) == (rank, phase):
            schedule.times[where] += by_ms * 10**6
    return schedule


def write_run(
    directory: Path,
    schedule: Schedule,
    session_id: str = "20240129_103000",
    pauses_ns: tuple[int, int] = (0, 0),
    windows: tuple[CaptureRecord, ...] = (CaptureRecord(7, 30, []),),
    **facts: Any,
) -> Path:
    """Its run file in the directory; `pauses_ns`: evaluation and checkpoint in every eighth step."""
    ranks = schedule.stages * schedule.replicas
    known = {
        "world_size": ranks,
        "tensor_parallel": 1,
        "pipeline_parallel": schedule.stages,
        "data_parallel": schedule.replicas,
        "pipeline_schedule": ONE_F_ONE_B if schedule.stages > 1 else None,
        "arguments": ARGUMENTS,
        **facts,
    }
    header = make_header(session_id, make_facts(**known), perf_breakdown=True)
    stages = [rank // schedule.replicas for rank in range(ranks)]
    captured, whole_ns = schedule.run()
    step_ns = whole_ns // (schedule.steps - 1)
    taken = {
        number: make_step(
            number,
            iteration_ns=step_ns,
            start_ns=number * step_ns,
            samples=SAMPLES,
            tokens=TOKENS,
            microbatches=schedule.batches,
            eval_ns=pauses_ns[0] * (number % 8 == 0),
            checkpoint_ns=pauses_ns[1] * (number % 8 == 0),
        )
        for number in range(1, 41)
    }
    records: list[Record] = [
        header,
        NodeRecord("node0", [*range(ranks)], [*range(ranks)], [""] * ranks, stages),
    ]
    for number, step in taken.items():
        records += [window for window in windows if window.first_iteration == number]
        records += [each for each in captured if each.iteration == number]
        records.append(step)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"perf_records_{session_id}.jsonl"
    path.write_bytes(b"".join(map(encode, records)))
    return path
