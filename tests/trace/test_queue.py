"""The queue that the tests of this directory share is a real one."""

from __future__ import annotations

from typing import Any

import ray
import torch
from tensordict import TensorDict


def test_what_is_put_in_one_process_is_got_in_another(queue: Any) -> None:
    @ray.remote(num_cpus=1)
    def put() -> None:
        import transfer_queue

        transfer_queue.init()
        data = TensorDict({"prompt": torch.arange(8).reshape(4, 2)}, batch_size=4)
        transfer_queue.get_client().put(data=data, partition_id="queue")

    ray.get(put.remote())
    client = queue.get_client()
    meta = client.get_meta(data_fields=["prompt"], batch_size=4, partition_id="queue", task_name="test")
    rows = client.get_data(meta)["prompt"]
    assert sorted(row.tolist() for row in rows.unbind()) == [[0, 1], [2, 3], [4, 5], [6, 7]]
