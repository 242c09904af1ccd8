"""Calls to a server in another process."""

from __future__ import annotations

import pytest
import torch

from flagscale_perf.rpc.client import Client
from flagscale_perf.rpc.errors import CallTimeout, PeerGone, RemoteFailure
from flagscale_perf.rpc.options import ClientOptions
from flagscale_perf.rpc.records import Status
from flagscale_perf.rpc.tensors import TORCH, array_of, tensor_of
from tests.rpc_server import serving


@pytest.fixture
def endpoint(tmp_path):
    with serving(endpoint=f"ipc://{tmp_path}/rpc.ipc", dtype="torch.bfloat16") as (_, endpoint):
        yield endpoint


@pytest.mark.parametrize("size", [0, 1, 1000, 100_000, 3_000_000])
def test_an_array_of_every_type_comes_back_as_it_was(endpoint, size):
    records = []
    with Client.connect(ClientOptions(endpoint=endpoint), records.append) as client:
        for dtype in TORCH.values():
            sent = torch.arange(size).to(dtype).reshape(1, size)
            reply = client.call("Echo", [array_of(sent)], {"step": 3, "name": "q", "at": [1, 2]})
            (back,) = reply.arrays
            assert tensor_of(back).dtype == dtype
            assert torch.equal(tensor_of(back), sent)
            assert reply.arguments == {"step": 3, "name": "q", "at": [1, 2]}
    assert [record.number for record in records] == list(range(1, len(TORCH) + 1))
    for dtype, record in zip(TORCH, records, strict=True):
        assert record.sent_bytes == record.received_bytes == size * dtype.bytes
        assert record.dtype == dtype and record.status == Status.OK and record.method == "Echo"
        stages = record[3:5] + (record.wait_ns, record.queue_ns, record.server_ns) + record[8:10]
        assert all(stage >= 0 for stage in stages) and sum(stages) <= record.total_ns


def test_the_servers_error_comes_with_its_traceback(endpoint):
    records = []
    with Client.connect(ClientOptions(endpoint=endpoint), records.append) as client:
        with pytest.raises(
            RemoteFailure, match="Fail failed at the server: ValueError: cannot use {'x': 1}"
        ) as error:
            client.call("Fail", arguments={"x": 1})
        assert "tests/rpc_server.py" in error.value.traceback_text
        assert client.call("Echo").arrays == []
    assert [record.status for record in records] == [Status.FAILED, Status.OK]


def test_a_late_reply_is_not_taken_for_the_next_one(endpoint):
    with Client.connect(ClientOptions(endpoint=endpoint)) as client:
        with pytest.raises(CallTimeout):
            client.call("Wait", arguments={"seconds": 0.3}, timeout_s=0.05)
        assert client.call("Echo", arguments={"a": 1}).arguments == {"a": 1}


def test_a_server_that_dies_is_seen(endpoint):
    records = []
    with Client.connect(ClientOptions(endpoint=endpoint), records.append) as client:
        with pytest.raises(PeerGone):
            client.call("Die")
        with pytest.raises(PeerGone):
            client.call("Echo")
    assert [record.status for record in records] == [Status.PEER_GONE, Status.PEER_GONE]
