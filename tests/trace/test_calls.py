"""Calls of real worker groups of verl, as they are recorded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import ray
import torch
from tensordict import TensorDict
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import make_nd_compute_dataproto_dispatch_fn, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

from flagscale_perf.trace.records import CallRecord, Kind, OperationRecord
from tests.trace import tracing
from tests.trace.tracing import Kept


class Scorer(Worker):
    """Two columns into one."""

    def __init__(self) -> None:
        super().__init__()
        self._register_dispatch_collect_info("data", self.rank, is_collect=True)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("data"))
    def score(self, batch: TensorDict) -> TensorDict:
        rows = batch["prompt"].size(0)
        return TensorDict({"score": torch.ones(rows, 2)}, batch_size=rows)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("data"))
    async def score_async(self, batch: TensorDict) -> TensorDict:
        rows = batch["prompt"].size(0)
        return TensorDict({"score": torch.ones(rows, 2)}, batch_size=rows)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("data"))
    def fail(self, batch: TensorDict) -> TensorDict:
        raise KeyError("no")

    @register()
    def records(self) -> Kept:
        return Kept(tracing.kept_here)


@pytest.fixture(scope="module")
def workers(queue: Any) -> Iterator[Any]:
    pool = RayResourcePool([2], use_gpu=False, max_colocate_count=1)
    group = RayWorkerGroup(pool, RayClassWithInitArgs(ray.remote(Scorer)), name_prefix="scorer")
    yield group
    for worker in group.workers:
        ray.kill(worker)


def produced(queue: Any, keys: list[str]) -> Any:
    fields = TensorDict({"prompt": torch.arange(len(keys) * 2).reshape(-1, 2)}, batch_size=len(keys))
    batch = queue.kv_batch_put(keys=keys, partition_id="train", fields=fields, tags=[{}] * len(keys))
    batch.extra_info = {"trace_id": "a1b2c3d4", "global_steps": 7}
    return batch


@pytest.mark.parametrize("function", ["score", "score_async"])
def test_a_call_of_each_worker_is_get_compute_and_put(queue: Any, workers: Any, function: str) -> None:
    before = [len(records) for records in workers.records()]
    getattr(workers, function)(produced(queue, [f"{function}{n}" for n in range(8)]))
    for records, start in zip(workers.records(), before, strict=True):
        kept = Kept(records[start:])
        (call,) = kept.of(CallRecord)
        get, put = kept.of(OperationRecord)
        names = records.names
        assert names[call.function] == function
        assert call.get_ns + call.compute_ns + call.put_ns == call.total_ns
        assert (call.rows, call.operations, call.get_bytes, call.put_bytes) == (4, 2, 4 * 16, 4 * 8)
        assert (get.operation, put.operation) == (Kind.GET, Kind.PUT)
        assert (get.call, put.call) == (call.number, call.number)
        assert (call.operations_get_ns, call.operations_put_ns) == (get.total_ns, put.total_ns)
        assert [each.trace_id for each in (call, get, put)] == ["a1b2c3d4"] * 3
        assert [each.step for each in (call, get, put)] == [7] * 3
        assert (call.error, call.parent) == (0, 0)
