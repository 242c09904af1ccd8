"""The baseline carries arrays as the others do, and says how long it took."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import zmq

from flagscale_perf.rpc.arrays import Array, DType
from flagscale_perf.rpc.costs.baseline import BaselineClient, BaselineServer
from flagscale_perf.rpc.errors import CallTimeout, InvalidMessage, RemoteFailure
from flagscale_perf.rpc.options import ClientOptions, ServerOptions
from flagscale_perf.rpc.records import CallRecord, Status
from flagscale_perf.rpc.transport.server import Request


def swap(request: Request) -> Sequence[Array]:
    request.results["seen"] = [request.method, request.arguments["layer"]]
    return request.arrays[::-1]


def fail(request: Request) -> Sequence[Array]:
    raise ValueError("no such layer")


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    server = BaselineServer({"Swap": swap, "Fail": fail}, ServerOptions(endpoint=f"ipc://{tmp_path}/b.ipc"))
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield server.endpoint
    server.stop()
    thread.join()


def test_arrays_and_arguments_go_there_and_come_back(endpoint: str) -> None:
    half = Array(DType.BFLOAT16, (2, 1), memoryview(b"abcd"))
    ids = Array(DType.INT64, (), memoryview(bytes(range(8))))
    records: list[CallRecord] = []
    with BaselineClient(ClientOptions(endpoint=endpoint), records.append) as client:
        reply = client.call("Swap", [half, ids], {"layer": 3})
    assert [(a.dtype, a.shape, bytes(a.data)) for a in reply.arrays] == [
        (DType.INT64, (), bytes(range(8))),
        (DType.BFLOAT16, (2, 1), b"abcd"),
    ]
    assert reply.arguments == {"seen": ["Swap", 3]}
    [record] = records
    assert (record.number, record.method, record.status) == (1, "Swap", Status.OK)
    assert (record.sent_bytes, record.received_bytes, record.dtype) == (12, 12, DType.INT64)
    assert record.socket_sent_bytes > 12
    assert record.shared_sent_bytes == 0
    assert record.server_ns is not None
    stages = record.serialize_ns + record.send_ns + record.wait_ns + record.server_ns
    assert stages + record.receive_ns + record.deserialize_ns == record.total_ns


def test_what_a_method_raises_reaches_the_caller_and_the_server_goes_on(endpoint: str) -> None:
    with BaselineClient(ClientOptions(endpoint=endpoint)) as client:
        with pytest.raises(RemoteFailure, match="Fail failed at the server: Exception: ValueError: no such"):
            client.call("Fail")
        with pytest.raises(RemoteFailure, match="KeyError: 'Missing'"):
            client.call("Missing")
        assert client.call("Swap", [], {"layer": 0}).arrays == []


def test_a_server_that_is_not_there_is_waited_for_no_longer_than_said(tmp_path: Path) -> None:
    with BaselineClient(ClientOptions(endpoint=f"ipc://{tmp_path}/none.ipc", timeout_s=0.05)) as client:
        for _ in range(2):  # a second call is possible
            with pytest.raises(CallTimeout, match="Swap: no reply within 0.05 s"):
                client.call("Swap")


@pytest.mark.parametrize("answer", [b"", b"\xc1", b"\x01", b"\x81\xa6arrays\x91\x80", b"\xa1x" * 3])
def test_a_reply_that_is_none_is_refused(tmp_path: Path, answer: bytes) -> None:
    with zmq.Context() as context, context.socket(zmq.REP) as peer:
        peer.bind(f"ipc://{tmp_path}/hostile.ipc")
        thread = threading.Thread(target=lambda: (peer.recv(), peer.send(answer)))
        thread.start()
        with (
            BaselineClient(ClientOptions(endpoint=f"ipc://{tmp_path}/hostile.ipc")) as client,
            pytest.raises(InvalidMessage, match=f"a message of {len(answer)} bytes that is not one of"),
        ):
            client.call("Swap")
        thread.join()
