"""Who wrote what a real queue's consumers got: every value says it itself."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import ray
import torch
import transfer_queue
from tensordict import TensorDict

from flagscale_perf.analysis.job import open_session
from flagscale_perf.trace.analysis.instrument import read_report
from tests.members import wait_for

ROWS, PARTITION = 6, "written"
FIELDS = ("prompt", "response", "score")


@ray.remote(num_cpus=0)
class Writer:
    """Puts its pid as the value of every field."""

    def __init__(self) -> None:
        transfer_queue.init()

    def pid(self) -> int:
        return os.getpid()

    def put(self, names: list[str], batch: Any) -> Any:
        """Into these samples, or new ones. Returns the batch."""
        data = TensorDict({name: torch.full((ROWS, 1), os.getpid()) for name in names}, batch_size=ROWS)
        given = {"partition_id": PARTITION} if batch is None else {"metadata": batch}
        return transfer_queue.get_client().put(data=data, **given)

    def get(self, name: str, batch: Any) -> tuple[int, Counter[int]]:
        """Returns this process and, by the values themselves, how many rows which process wrote."""
        rows = transfer_queue.get_client().get_data(batch.select_fields([name]))[name]
        return os.getpid(), Counter(int(row.item()) for row in rows.unbind())


def test_the_producer_of_each_field_is_the_one_whose_value_was_got(queue: Any, tmp_path: Path) -> None:
    environment = {"TQ_TRACE_DETAIL_ENABLED": "1", "TQ_TRACE_DIR": str(tmp_path)}
    options = {"runtime_env": {"env_vars": environment}}
    actors = [Writer.options(**options).remote() for _ in range(3)]
    pids = ray.get([actor.pid.remote() for actor in actors])
    source, truth = random.Random(3), Counter[tuple[int, int]]()
    for _ in range(8):
        batch = ray.get(source.choice(actors).put.remote(["prompt"], None))
        for names in (["response"], ["score", "note"], ["note"]):
            batch = ray.get(source.choice(actors).put.remote(names, batch))
        for name in FIELDS:
            reader, wrote = ray.get(source.choice(actors).get.remote(name, batch))
            truth.update({(writer, reader): rows for writer, rows in wrote.items()})
    queue.get_client().clear_partition(partition_id=PARTITION)
    for ending in [actor.__ray_terminate__.remote() for actor in actors]:
        ray.wait([ending])
    actors.clear()
    wait_for(lambda: not any(map(psutil.pid_exists, pids)))
    lineage = read_report(open_session(tmp_path)).lineage
    assert lineage is not None
    samples = {pair: flow.samples for pair, flow in lineage.flows.items()}
    assert {tuple(int(name.split()[-1]) for name in pair): count for pair, count in samples.items()} == truth
    assert lineage.joined_share == 1.0
