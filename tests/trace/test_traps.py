"""What has gone wrong with tracing a real queue before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import ray
import torch
import transfer_queue
from tensordict import NonTensorData, NonTensorStack, TensorDict
from verl.protocol import DataProto
from verl.utils.transferqueue_utils import tqbridge as untraced

from flagscale_perf.trace.records import CallRecord, Kind, OperationRecord
from tests.trace.tracing import Kept, traced


def batch(rows: int = 4) -> TensorDict:
    return TensorDict({"prompt": torch.arange(rows * 2).reshape(rows, 2)}, batch_size=rows)


def bridge() -> Any:
    """`tqbridge` as it is now."""
    from verl.utils import transferqueue_utils

    return transferqueue_utils.tqbridge


def operations(kept: Kept) -> list[OperationRecord]:
    return kept.of(OperationRecord)


def test_a_client_that_was_there_is_traced_until_it_is_undone(queue: Any) -> None:
    client = queue.get_client()
    client.put(data=batch(), partition_id="before")
    with traced() as kept:
        client.put(data=batch(), partition_id="sync")
        asyncio.run(client.async_put(batch(), partition_id="async"))
        queue.kv_put("key", "keys", fields=batch(1))
    client.put(data=batch(), partition_id="after")
    names = kept.names
    assert [names[each.partition] for each in operations(kept)] == ["sync", "async", "keys"]


def test_nothing_is_patched_twice(queue: Any) -> None:
    from flagscale_perf.hosts.transfer_queue.install import install
    from tests.trace.tracing import options

    with traced() as kept:
        assert install(options()) is install(options())
        queue.get_client().put(data=batch(), partition_id="twice")
    assert len(operations(kept)) == 1


@pytest.mark.parametrize(
    "given", ["id", ["id", "id"], ["id", "other"], NonTensorData("id"), NonTensorStack("id", "id")]
)
def test_an_id_is_read_in_every_shape(queue: Any, given: Any) -> None:
    client = queue.get_client()
    made = client.put(data=batch(), partition_id="ids")
    made.extra_info["trace_id"] = given
    with traced() as kept:
        client.get_data(made)
    assert operations(kept)[0].trace_id == "id"


def test_two_ids_are_refused_by_the_queue_as_without_tracing(queue: Any) -> None:
    with traced():
        client = queue.get_client()
        one, two = (client.put(data=batch(), partition_id=f"concat {n}") for n in range(2))
        one.extra_info["trace_id"], two.extra_info["trace_id"] = "one", "two"
        with pytest.raises(ValueError):
            type(one).concat([one, two])


def test_an_id_in_a_dataproto_is_a_field_that_the_queue_refuses_and_that_is_recorded(queue: Any) -> None:
    proto = DataProto.from_dict({"prompt": torch.zeros(4, 2)}, meta_info={"trace_id": "id"})
    with traced() as kept, pytest.raises(TypeError):
        queue.get_client().put(data=proto.to_tensordict(), partition_id="proto")
    (put,) = operations(kept)
    assert (kept.names[put.error], put.size_bytes) == ("TypeError", None)


def test_bytes_are_those_of_the_values_however_they_are_laid_out(queue: Any) -> None:
    rows = [torch.zeros(n + 1) for n in range(4)]
    given = TensorDict(
        {
            "dense": torch.zeros(4, 2),
            "jagged": torch.nested.as_nested_tensor(rows, layout=torch.jagged),
            "strided": torch.nested.as_nested_tensor(rows, layout=torch.strided),
            "text": NonTensorStack("a", "bc", "é", ""),
        },
        batch_size=4,
    )
    client = queue.get_client()
    with traced() as kept:
        client.get_data(client.put(data=given, partition_id="bytes"))
    assert [each.size_bytes for each in operations(kept)] == [32 + 40 + 40 + 5] * 2


def test_calls_side_by_side_keep_their_operations_apart(queue: Any) -> None:
    client = queue.get_client()
    made = [client.put(data=batch(), partition_id=f"side {n}") for n in range(40)]
    for number, each in enumerate(made):
        each.extra_info["trace_id"] = f"id {number}"

    async def work(data: TensorDict) -> TensorDict:
        await asyncio.sleep(0)
        return TensorDict({"score": data["prompt"].to_padded_tensor(0)}, batch_size=4)

    async def all_of_them(function: Any) -> None:
        await asyncio.gather(*(function(each) for each in made))

    with traced() as kept:
        asyncio.run(all_of_them(bridge()()(work)))
    calls = {call.number: call for call in kept.of(CallRecord)}
    assert sorted(call.trace_id for call in calls.values()) == sorted(f"id {n}" for n in range(40))
    assert len(operations(kept)) == 80
    for operation in operations(kept):
        assert operation.trace_id == calls[operation.call].trace_id
    for call in calls.values():
        kinds = [each.operation for each in operations(kept) if each.call == call.number]
        assert kinds == [Kind.GET, Kind.PUT] and call.operations == 2


def test_a_call_in_a_call_keeps_its_own_id(queue: Any) -> None:
    client = queue.get_client()
    outer, inner = (client.put(data=batch(), partition_id=f"nested {n}") for n in range(2))
    outer.extra_info["trace_id"], inner.extra_info["trace_id"] = "outer", "inner"
    with traced() as kept:

        @bridge()()
        def within(data: TensorDict) -> TensorDict:
            return TensorDict({"in": torch.zeros(4, 1)}, batch_size=4)

        @bridge()()
        def around(data: TensorDict) -> TensorDict:
            within(inner)
            return TensorDict({"out": torch.zeros(4, 1)}, batch_size=4)

        around(outer)
    calls = {kept.names[call.function]: call for call in kept.of(CallRecord)}
    assert calls["within"].parent == calls["around"].number
    assert [calls[name].trace_id for name in ("within", "around")] == ["inner", "outer"]
    assert [(each.call, each.trace_id) for each in operations(kept)] == [
        (calls["around"].number, "outer"),
        (calls["within"].number, "inner"),
        (calls["within"].number, "inner"),
        (calls["around"].number, "outer"),
    ]


def test_a_function_that_raises_is_a_call_with_an_error(queue: Any) -> None:
    made = queue.get_client().put(data=batch(), partition_id="raises")
    with traced() as kept:

        @bridge()()
        def boom(data: TensorDict) -> TensorDict:
            raise KeyError("no")

        with pytest.raises(KeyError, match="no"):
            boom(made)
    (call,) = kept.of(CallRecord)
    assert (kept.names[call.error], call.put_ns, call.operations) == ("KeyError", None, 1)
    assert call.get_ns + call.compute_ns <= call.total_ns


def test_functions_without_a_batch_and_empty_batches(queue: Any) -> None:
    from transfer_queue import BatchMeta

    with traced() as kept:

        @bridge()()
        def double(value: int) -> int:
            return 2 * value

        @bridge()()
        def size(data: TensorDict) -> int:
            return len(data.keys())

        assert double(4) == 8
        assert len(kept) == 0
        assert size(BatchMeta([], [])) == 0
        assert queue.get_client().get_data(BatchMeta([], [])).batch_size == (0,)
    (call,), (get,) = kept.of(CallRecord), operations(kept)
    assert (call.rows, call.operations, call.get_bytes) == (0, 0, 0)
    assert (get.rows, get.first_row, get.size_bytes) == (0, None, 0)


def test_a_class_that_is_sent_by_value_can_be(queue: Any) -> None:
    made = queue.get_client().put(data=batch(), partition_id="by value")
    with traced() as kept:

        class Local:  # by value, as one of the driver's `__main__`
            @bridge()()
            def work(self, data: TensorDict) -> int:
                return len(data)

            @bridge()()
            async def work_async(self, data: TensorDict) -> int:
                return len(data)

        @ray.remote(num_cpus=1)
        def there(local: Any, batch_meta: Any) -> list[int]:
            transfer_queue.init()
            return [local().work(batch_meta), asyncio.run(local().work_async(batch_meta))]

        assert ray.get(there.remote(Local, made)) == [4, 4]
        assert [Local().work(made), asyncio.run(Local().work_async(made))] == [4, 4]
    assert [kept.names[call.function] for call in kept.of(CallRecord)] == ["work", "work_async"]


def test_hostile_ids_go_through_as_they_are(queue: Any) -> None:
    client = queue.get_client()
    made = client.put(data=batch(), partition_id="a | b\n\x1b[31m")
    made.extra_info["trace_id"] = "x | func=y\n<b>"
    with traced() as kept:
        client.get_data(made)
    (get,) = operations(kept)
    assert (get.trace_id, kept.names[get.partition]) == ("x | func=y\n<b>", "a | b\n\x1b[31m")


def test_stamped_samples_carry_the_id_to_whoever_gets_them(queue: Any) -> None:
    client = queue.get_client()
    with traced(stamp=True) as kept:
        client.put(data=batch(), partition_id="stamped")
        meta = client.get_meta(["prompt"], batch_size=4, partition_id="stamped", task_name="stamped")
        client.get_data(meta)
    put, get = operations(kept)
    assert put.trace_id and get.trace_id == put.trace_id


def test_undone_verl_decorates_as_before(queue: Any) -> None:
    from verl.single_controller.base import decorator

    with traced():
        assert bridge() is not untraced
        assert decorator.tqbridge is not untraced
    assert bridge() is untraced and decorator.tqbridge is untraced
