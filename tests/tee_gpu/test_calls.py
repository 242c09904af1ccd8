"""Calls to a server in another process, over each link and with each place for the arrays."""

from __future__ import annotations

import json

import pytest
import torch
from tensor_rpc import wire
from tensor_rpc.client import Client
from tensor_rpc.errors import CallTimeout, PeerGone, Refused, RemoteFailure, RpcError
from tensor_rpc.options import ClientOptions
from tensor_rpc.server import MOST_TEXT, _failure
from tensor_rpc.tensors import TORCH, array_of, tensor_of
from tensor_rpc.wire import NOTHING_TOLD, byte_count

from flagscale_perf.rpc.dtypes import DType
from flagscale_perf.rpc.records import Status
from tests.tee_gpu.echo_server import serving

WAYS = {payload: {"payload": payload} for payload in ("frames", "shared", "msgpack")}


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory):
    path = tmp_path_factory.mktemp("rpc") / "rpc.ipc"
    with serving(endpoint=f"ipc://{path}", arena_bytes=8 * 2**20) as (_, endpoint):
        yield endpoint


@pytest.fixture(params=WAYS)
def options(request, shared_server):
    return ClientOptions(endpoint=shared_server, **WAYS[request.param])


@pytest.mark.parametrize("size", [0, 1, 1000, 100_000])
def test_an_array_of_every_type_comes_back_as_it_was(options, size):
    records = []
    with Client.connect(options, records.append) as client:
        for dtype in TORCH.values():
            sent = torch.arange(size).to(dtype).reshape(1, size)
            (back,) = client.call("Echo", [array_of(sent)])
            assert tensor_of(back).dtype == dtype
            assert torch.equal(tensor_of(back), sent)
    assert [record.number for record in records] == list(range(1, len(TORCH) + 1))
    for dtype, record in zip(TORCH, records, strict=True):
        assert record.sent_bytes == record.received_bytes == byte_count(dtype, (size,))
        assert record.dtype == dtype and record.status == Status.OK and record.method == "Echo"
        assert record.socket_sent_bytes + record.shared_sent_bytes >= byte_count(dtype, (size,))
        stages = record[3:5] + (record.wait_ns, record.queue_ns, record.server_ns) + record[8:10]
        assert all(stage >= 0 for stage in stages) and sum(stages) <= record.total_ns


def test_arguments_arrive_as_they_were(options):
    said = {"step": 3, "share": 0.5, "name": "q", "is_last": True, "at": [1, 2]}
    with Client.connect(options) as client:
        (back,) = client.call("Told", arguments=said)
        assert json.loads(bytes(back.data)) == said


def test_several_arrays_of_one_call_keep_their_order(options):
    sent = [torch.full((n,), n, dtype=torch.int32) for n in (1, 70_000, 3, 0, 300_000, 2)]
    with Client.connect(options) as client:
        back = client.call("Echo", [array_of(each) for each in sent])
        assert all(torch.equal(tensor_of(a), b) for a, b in zip(back, sent, strict=True))


def test_what_is_written_in_place_arrives(options):
    with Client.connect(options) as client:
        for n in range(3):
            loan = client.loan(DType.FLOAT32, (1000,))
            tensor_of(loan).fill_(n)
            other = torch.full((5,), 9.0)
            back = client.call("Echo", [array_of(other), array_of(tensor_of(loan))])
            assert tensor_of(back[0]).tolist() == [9.0] * 5
            assert tensor_of(back[1]).tolist() == [float(n)] * 1000
            made = client.call("Make", arguments={"bytes": 5000})[0]
            assert bytes(made.data) == b"\x07" * 5000


def test_an_array_above_its_share_of_the_memory_goes_as_frames(shared_server):
    records = []
    with Client.connect(ClientOptions(endpoint=shared_server), records.append) as client:
        sent = torch.arange(2**20, dtype=torch.int64)
        assert torch.equal(tensor_of(client.call("Echo", [array_of(sent)])[0]), sent)
    assert records[0].shared_sent_bytes == records[0].shared_received_bytes == 0


def test_calls_under_way_may_be_taken_in_any_order(options):
    with Client.connect(options) as client:
        first, second = (client.submit("Echo", [array_of(torch.full((50_000,), n))]) for n in (1, 2))
        with pytest.raises(Refused, match="2 calls are under way; take the result of one first"):
            client.submit("Echo")
        assert tensor_of(second.result()[0]).unique().tolist() == [2]
        assert tensor_of(first.result()[0]).unique().tolist() == [1]
        with pytest.raises(Refused, match="taken already"):
            first.result()


def test_the_servers_error_comes_with_its_traceback(options):
    records = []
    with Client.connect(options, records.append) as client:
        with pytest.raises(
            RemoteFailure, match="Fail failed at the server: ValueError: cannot use {'x': 1}"
        ) as error:
            client.call("Fail", arguments={"x": 1})
        assert "tests/tee_gpu/echo_server.py" in error.value.traceback_text
        assert client.call("Echo") == []
    assert [record.status for record in records] == [Status.FAILED, Status.OK]


@pytest.mark.parametrize("value", ["\udc80", 2**70, object()])
def test_arguments_that_cannot_travel_are_refused_before_they_do(options, value):
    records = []
    with Client.connect(options, records.append) as client:
        for _ in range(3):  # more often than there are slots
            with pytest.raises(RpcError, match="arguments hold what calls do not carry"):
                client.call("Echo", arguments={"x": value})
        assert client.call("Echo") == []
    assert [record.status for record in records] == [Status.FAILED] * 3 + [Status.OK]


def test_whatever_an_error_says_its_report_can_be_sent():
    error = OSError("no file \udc80" + "\U0001f600" * 100_000)
    failure = wire.for_client(_failure(1, Status.FAILED, NOTHING_TOLD, error))
    assert isinstance(failure, wire.Failure)
    assert failure.text.startswith("no file \\udc80\U0001f600")
    assert len(failure.text.encode()) <= MOST_TEXT


def test_a_late_reply_is_not_taken_for_the_next_one(options, tmp_path):
    with Client.connect(options) as client:
        for number in range(3):  # more often than there are slots
            go_on = tmp_path / f"go_on_{number}"
            with pytest.raises(CallTimeout):
                client.call("Wait", arguments={"until": str(go_on)}, timeout_s=0.02)
            go_on.touch()
            (back,) = client.call("Told", arguments={"a": number})
            assert json.loads(bytes(back.data)) == {"a": number}


def test_wrong_uses_are_refused_before_anything_is_sent(shared_server):
    with Client.connect(ClientOptions(endpoint=shared_server)) as client:
        with pytest.raises(Refused, match="no method 'Ecko'; it has .*; did you mean Echo"):
            client.call("Ecko")
        array = array_of(torch.zeros(4))
        with pytest.raises(Exception, match="takes 20 bytes, and its data has 16 items"):
            client.call("Echo", [array._replace(shape=(5,))])
        with pytest.raises(Exception, match="arguments hold what calls do not carry"):
            client.call("Echo", arguments={"x": object()})
        assert client.call("Echo") == []


@pytest.mark.parametrize("way", WAYS)
def test_a_server_that_dies_is_seen(tmp_path, way):
    records = []
    with serving(endpoint=f"ipc://{tmp_path}/rpc.ipc") as (_, endpoint):
        options = ClientOptions(endpoint=endpoint, **WAYS[way])
        with Client.connect(options, records.append) as client:
            with pytest.raises(PeerGone):
                client.call("Die")
            with pytest.raises(PeerGone):
                client.call("Echo")
    assert [record.status for record in records] == [Status.PEER_GONE, Status.PEER_GONE]
