"""Somebody else's sockets, recorded."""

from __future__ import annotations

import errno

import pytest
import zmq

from flagscale_perf.rpc import probe as probe_module
from flagscale_perf.rpc.probe import Probe
from flagscale_perf.rpc.records import CallRecord, Status


class FakeSocket:
    """Sends and receives take 3 and 5 ns of a clock of our own."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.sent: list[bytes] = []
        self.linger = -1

    def send(self, data, flags: int = 0, copy: bool = True):
        self.clock.now += 3
        self.sent.append(bytes(data))

    def recv(self, flags: int = 0, copy: bool = True):
        self.clock.now += 5
        if not self.sent:
            raise zmq.Again(errno.EAGAIN)
        return self.sent.pop(0)

    def send_multipart(self, parts) -> None:
        for part in parts:
            self.send(part)

    def __enter__(self):
        return self

    def __exit__(self, *error) -> None:
        self.linger = 0


class Clock:
    def __init__(self) -> None:
        self.now = 1000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(probe_module, "_now_ns", made)
    return made


@pytest.fixture
def calls() -> list[CallRecord]:
    return []


@pytest.fixture
def probe(calls) -> Probe:
    return Probe(calls.append, lambda reason: None)


def test_a_call_by_its_stages(probe, calls, clock) -> None:
    socket = probe.wrap(FakeSocket(clock))
    with probe.call("Matmul"):
        clock.now += 10  # packing
        socket.send(b"12345")
        clock.now += 2
        reply = socket.recv()
        clock.now += 7  # unpacking
    assert reply == b"12345"
    (call,) = calls
    assert (call.number, call.method, call.status, call.start_ns) == (1, "Matmul", Status.OK, 1000)
    assert (call.serialize_ns, call.send_ns, call.receive_ns, call.deserialize_ns) == (10, 3, 5, 7)
    assert (call.total_ns, call.wait_ns, call.server_ns, call.queue_ns) == (27, 0, None, None)
    assert (call.sent_bytes, call.received_bytes, call.socket_sent_bytes) == (5, 5, 5)


def test_several_parts_and_several_messages_add_up(probe, calls, clock) -> None:
    socket = probe.wrap(FakeSocket(clock))
    with probe.call("Matmul"):
        socket.send_multipart([b"12", memoryview(b"345")])
        socket.send(b"6")
        socket.recv()
        socket.recv()
    (call,) = calls
    assert (call.send_ns, call.sent_bytes, call.receive_ns, call.received_bytes) == (9, 6, 10, 5)


def test_what_fails_is_recorded_and_raised(probe, calls, clock) -> None:
    socket = probe.wrap(FakeSocket(clock))
    with pytest.raises(zmq.Again), probe.call("Matmul"):
        socket.recv()
    with pytest.raises(ZeroDivisionError), probe.call("Matmul"):
        1 / 0  # noqa: B018
    assert [(call.number, call.status) for call in calls] == [(1, Status.TIMEOUT), (2, Status.FAILED)]
    assert calls[1].serialize_ns == calls[1].total_ns  # nothing was sent


def test_everything_else_is_the_sockets_own(probe, clock) -> None:
    socket = FakeSocket(clock)
    with probe.wrap(socket) as wrapped:
        wrapped.linger = 7
        assert (socket.linger, wrapped.clock) == (7, clock)
    assert socket.linger == 0
    with pytest.raises(AttributeError):
        wrapped.nothing_of_the_kind  # noqa: B018


def test_a_real_pair(probe, calls) -> None:
    with zmq.Context() as context, context.socket(zmq.PAIR) as far, context.socket(zmq.PAIR) as near:
        far.bind("inproc://probe")
        near.connect("inproc://probe")
        socket = probe.wrap(near)
        with probe.call("Echo"):
            socket.send_json({"a": 1})
            far.send(far.recv())
            assert socket.recv_json() == {"a": 1}
            socket.send(b"1234", copy=False)
            far.send_multipart(far.recv_multipart())
            assert [bytes(part) for part in socket.recv_multipart(copy=False)] == [b"1234"]
    (call,) = calls
    assert (call.sent_bytes, call.received_bytes) == (8 + 4, 8 + 4)
    assert call.total_ns >= call.send_ns + call.receive_ns > 0


@pytest.mark.parametrize("name", ["a b", "pkg.Service/Call", "x" * 300, "矩阵", "", "\ud800", None, ["a"]])
def test_a_name_of_any_form_raises_nothing_and_fits_its_slot(probe, calls, name) -> None:
    with probe.call(name):
        pass
    (call,) = calls
    assert 0 < len(call.method.encode()) <= 24


def test_names_made_anew_for_each_call_do_not_pile_up(probe, monkeypatch) -> None:
    monkeypatch.setattr(probe_module, "MAX_NAMES", 2)
    for number in range(5):
        with probe.call(f"request {number}"):
            pass
    assert len(probe._calls) == 2
