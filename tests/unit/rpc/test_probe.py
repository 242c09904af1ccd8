"""Somebody else's sockets, recorded."""

from __future__ import annotations

import contextvars
import copy
import errno
import gc
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest
import zmq

from flagscale_perf.rpc import probe as probe_module
from flagscale_perf.rpc.probe import Probe
from flagscale_perf.rpc.records import CallRecord, Status

ENDPOINT = "inproc://probe"


class Clock:
    def __init__(self) -> None:
        self.now = 1000

    def __call__(self) -> int:
        return self.now


class FakeSocket(zmq.Socket):
    """Sends and receives take 3 and 5 ns of a clock of our own."""

    clock: Clock
    queue: list[bytes]

    def send(self, data, flags=0, copy=True, track=False):
        self.clock.now += 3
        if data == b"full":
            raise zmq.Again(errno.EAGAIN)
        self.queue.append(bytes(data))

    def recv(self, flags=0, copy=True, track=False):
        self.clock.now += 5
        if not self.queue:
            raise zmq.Again(errno.EAGAIN)
        return self.queue.pop(0)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(probe_module, "_now_ns", made)
    return made


@pytest.fixture
def fake(probe, clock, context) -> Iterator[FakeSocket]:
    with FakeSocket(context, zmq.REQ) as socket:
        socket.clock, socket.queue = clock, []
        yield probe.wrap(socket)


@pytest.fixture
def serve(context) -> Iterator[Callable[..., None]]:
    """Starts a thread that answers in the order of arrival; it holds the first reply until `go` is set."""
    threads = []

    def start(requests: int, go: threading.Event | None = None, swallowed: int = -1) -> None:
        socket = context.socket(zmq.ROUTER)
        socket.bind(ENDPOINT)

        def answer() -> None:
            for number in range(requests):
                message = socket.recv_multipart()
                if go is not None:
                    go.wait()
                if number != swallowed:
                    socket.send_multipart(message)

        threads.append((threading.Thread(target=answer), socket))
        threads[-1][0].start()

    yield start
    for thread, socket in threads:
        thread.join()
        socket.close(linger=0)


def connected(context: zmq.Context, probe: Probe, kind: int = zmq.REQ) -> zmq.Socket:
    socket = probe.wrap(context.socket(kind))
    socket.linger = 0
    socket.connect(ENDPOINT)
    return socket


def stages_of(call: CallRecord) -> int:
    return call.serialize_ns + call.send_ns + call.receive_ns + call.deserialize_ns


def test_a_call_by_its_stages(probe, calls, clock, fake) -> None:
    with probe.call("Matmul"):
        clock.now += 10  # packing
        fake.send(b"12345")
        clock.now += 2  # waiting by other means, such as a poller
        reply = fake.recv()
        clock.now += 7  # unpacking
    assert reply == b"12345"
    (call,) = calls
    assert (call.number, call.method, call.status, call.start_ns) == (1, "Matmul", Status.OK, 1000)
    assert (call.serialize_ns, call.send_ns, call.receive_ns, call.deserialize_ns) == (10, 3, 2 + 5, 7)
    assert (call.total_ns, call.wait_ns, call.server_ns, call.queue_ns) == (27, None, None, None)
    assert (call.sent_bytes, call.received_bytes, call.socket_sent_bytes) == (5, 5, 5)


def test_several_parts_and_several_messages_add_up(probe, calls, clock, fake) -> None:
    with probe.call("Matmul"):
        fake.send(b"12", zmq.SNDMORE)
        clock.now += 4  # packing of the next part: no wait
        fake.send(memoryview(b"345"))
        fake.send(b"6", flags=0)
        fake.recv()
        fake.recv()
    (call,) = calls
    assert (call.send_ns, call.sent_bytes, call.receive_ns, call.received_bytes) == (9, 6, 10, 5)
    assert call.total_ns == 23


def test_what_fails_is_recorded_and_raised(probe, calls, clock, fake) -> None:
    with pytest.raises(zmq.Again), probe.call("Matmul"):
        fake.send(b"1")
        fake.queue.clear()
        fake.recv()
    with pytest.raises(ZeroDivisionError), probe.call("Matmul"):
        clock.now += 2
        1 / 0  # noqa: B018
    assert [(call.number, call.status) for call in calls] == [(1, Status.TIMEOUT), (2, Status.FAILED)]
    assert (calls[0].send_ns, calls[0].receive_ns, calls[0].total_ns) == (3, 5, 8)
    assert calls[1].serialize_ns == calls[1].total_ns == 2  # nothing was sent


def test_attempts_to_send_and_to_receive_are_one_wait(probe, calls, clock, fake) -> None:
    with probe.call("Matmul"):
        clock.now += 1
        for _ in range(2):
            with pytest.raises(zmq.Again):
                fake.send(b"full")
            clock.now += 10
        fake.send(b"1")
        reply = fake.queue.pop()
        with pytest.raises(zmq.Again):
            fake.recv(zmq.NOBLOCK)
        clock.now += 20
        fake.queue.append(reply)
        fake.recv()
    (call,) = calls
    assert (call.serialize_ns, call.send_ns, call.receive_ns) == (1, 2 * 13 + 3, 5 + 20 + 5)
    assert call.total_ns == stages_of(call)


def test_a_call_within_a_call_counts_its_own(probe, calls, clock, fake) -> None:
    with probe.call("Outer"):
        fake.send(b"12")
        with probe.call("Inner"):
            fake.send(b"345")
            fake.recv()
        fake.recv()
    inner, outer = calls
    assert (inner.method, inner.sent_bytes, inner.received_bytes, inner.total_ns) == ("Inner", 3, 2, 8)
    assert (outer.method, outer.sent_bytes, outer.received_bytes, outer.total_ns) == ("Outer", 2, 3, 16)


def test_a_call_begun_in_another_context_has_no_invented_begin(probe, calls) -> None:
    call = probe.call("Stray")
    contextvars.Context().run(call.__enter__)
    call.__exit__(None, None, None)
    assert calls == []


def test_it_stays_the_very_socket(probe, context) -> None:
    socket = context.socket(zmq.REQ)
    text, names = repr(socket), dir(socket)
    assert probe.wrap(socket) is socket and probe.wrap(socket) is socket
    assert isinstance(socket, zmq.Socket) and (repr(socket), dir(socket)) == (text, names)
    assert inspect.signature(socket.send) == inspect.signature(context.socket(zmq.REQ).send)
    socket.linger = 7
    assert socket.linger == socket.getsockopt(zmq.LINGER) == 7
    with pytest.raises(AttributeError):
        socket.nothing_of_the_kind  # noqa: B018
    monitor = socket.get_monitor_socket()
    assert type(monitor) is zmq.Socket
    socket.disable_monitor()
    assert copy.copy(socket).underlying == zmq.Socket(shadow=socket).underlying == socket.underlying
    with socket:
        pass
    assert socket.closed
    gone, socket = weakref.ref(socket), None
    gc.disable()
    try:
        assert gone() is None  # nothing of the probe's keeps it
    finally:
        gc.enable()


def by_blocking(socket: zmq.Socket) -> None:
    """recv waits."""


def by_poll(socket: zmq.Socket) -> None:
    assert socket.poll(60_000) == zmq.POLLIN


def by_poller(socket: zmq.Socket) -> None:
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    assert dict(poller.poll(60_000)) == {socket: zmq.POLLIN}


def by_select(socket: zmq.Socket) -> None:
    assert zmq.select([socket], [], [], 60) == ([socket], [], [])


def by_attempts(socket: zmq.Socket) -> None:
    while not socket.get(zmq.EVENTS) & zmq.POLLIN:
        with pytest.raises(zmq.Again):
            socket.recv(zmq.NOBLOCK)
        threading.Event().wait(0.001)


@pytest.mark.parametrize("wait", [by_blocking, by_poll, by_poller, by_select, by_attempts])
@pytest.mark.parametrize("kind", [zmq.REQ, zmq.DEALER])
def test_a_wait_is_a_wait_however_it_is_waited_for(probe, calls, context, serve, wait, kind) -> None:
    go = threading.Event()
    serve(1, go)
    with connected(context, probe, kind) as socket, probe.call("Ask"):
        socket.send(b"hello")
        timer = threading.Timer(0.05, go.set)
        timer.start()
        wait(socket)
        assert socket.recv() == b"hello"
    timer.join()
    (call,) = calls
    assert call.receive_ns > 40_000_000 and call.total_ns == stages_of(call)
    assert (call.sent_bytes, call.received_bytes) == (5, 5)


def test_lazy_pirate_of_the_guide(probe, calls, context, serve) -> None:
    """The third request is swallowed: the client gives its socket up and asks again by another."""
    serve(5, swallowed=2)
    socket = connected(context, probe)
    for number in range(4):
        with probe.call("Ask"):
            socket.send(b"%d" % number)
            while not socket.poll(300 if number == 2 else 60_000) & zmq.POLLIN:
                socket.close(linger=0)
                socket = connected(context, probe)
                socket.send(b"%d" % number)
            assert socket.recv() == b"%d" % number
    socket.close()
    assert [call.sent_bytes for call in calls] == [1, 1, 2, 1]
    assert calls[2].receive_ns >= 300_000_000
    assert all(call.total_ns == stages_of(call) for call in calls)


def test_a_call_without_its_reply_has_waited_to_its_end(probe, calls, context) -> None:
    with context.socket(zmq.ROUTER) as silent, connected(context, probe) as socket:
        silent.bind(ENDPOINT)
        socket.rcvtimeo = 50
        with pytest.raises(zmq.Again), probe.call("Ask"):
            socket.send(b"1")
            socket.recv()
    with connected(context, probe, zmq.DEALER) as socket, probe.call("Give up"):
        socket.send(b"1")
        assert not socket.poll(50)
    for call, status in zip(calls, (Status.TIMEOUT, Status.OK), strict=True):
        assert call.status == status and call.receive_ns > 40_000_000 and call.deserialize_ns == 0
        assert call.total_ns == stages_of(call)


def test_a_proxy_takes_it(probe, context) -> None:
    """zmq.proxy moves messages within libzmq; the socket must be pyzmq's own to be taken."""
    with context.socket(zmq.ROUTER) as front, context.socket(zmq.REP) as server:
        back = probe.wrap(context.socket(zmq.DEALER))
        front.bind("inproc://front")
        back.bind("inproc://back")
        server.connect("inproc://back")
        control = context.socket(zmq.PAIR)
        control.bind("inproc://control")
        thread = threading.Thread(target=zmq.proxy_steerable, args=(front, back, None, control))
        thread.start()
        with context.socket(zmq.REQ) as client, context.socket(zmq.PAIR) as stop:
            client.connect("inproc://front")
            client.send(b"1")
            server.send(server.recv())
            assert client.recv() == b"1"
            stop.connect("inproc://control")
            stop.send(b"TERMINATE")
            thread.join()
        control.close()
        back.close()


def test_every_way_to_send_and_to_receive(probe, calls, context) -> None:
    with context.socket(zmq.PAIR) as far, context.socket(zmq.PAIR) as near:
        far.bind(ENDPOINT)
        socket = probe.wrap(near)
        socket.connect(ENDPOINT)
        with probe.call("Echo"):
            socket.send_json({"a": 1})
            far.send(far.recv())
            assert socket.recv_json() == {"a": 1}
            socket.send_string("ä", encoding="utf-8")
            far.send(far.recv())
            assert socket.recv_string() == "ä"
            socket.send_pyobj([1])
            far.send(far.recv())
            assert socket.recv_pyobj() == [1]
            socket.send_serialized([1], lambda numbers: [bytes(numbers)])
            far.send(far.recv())
            assert socket.recv_serialized(lambda parts: parts) == [b"\x01"]
            tracker = socket.send(b"1234", copy=False, track=True)
            far.send_multipart(far.recv_multipart())
            assert isinstance(tracker, zmq.MessageTracker)
            assert [bytes(part) for part in socket.recv_multipart(copy=False)] == [b"1234"]
            socket.send(data=zmq.Frame(b"12345678"), flags=zmq.NOBLOCK)
            far.send(far.recv())
            buffer = bytearray(10)
            assert not hasattr(socket, "recv_into") or socket.recv_into(buffer) == 8
    (call,) = calls
    pickled = call.sent_bytes - (7 + 2 + 1 + 4 + 8)
    assert call.sent_bytes == call.received_bytes and pickled > 2
    assert call.total_ns >= call.send_ns + call.receive_ns > 0


def test_each_thread_times_its_own_calls(probe, calls, context) -> None:
    """Two threads with a socket each, whose calls overlap: the shorter lies within the longer."""
    begun, ended = threading.Event(), threading.Event()

    def long() -> None:
        with connected(context, probe) as socket, probe.call("Long"):
            socket.send(b"x" * 1000)
            begun.set()
            ended.wait()
            assert socket.recv() == b"x" * 1000

    with context.socket(zmq.ROUTER) as server:
        server.bind(ENDPOINT)
        thread = threading.Thread(target=long)
        thread.start()
        begun.wait()
        with connected(context, probe) as socket, probe.call("Short"):
            socket.send(b"1")
            for _ in range(2):
                server.send_multipart(server.recv_multipart())
            assert socket.recv() == b"1"
        ended.set()
        thread.join()
    short, longer = calls
    assert [(call.number, call.method, call.sent_bytes) for call in calls] == [
        (1, "Short", 1),
        (2, "Long", 1000),
    ]
    assert longer.start_ns < short.start_ns and longer.total_ns > short.total_ns
    assert all(call.total_ns == stages_of(call) for call in calls)


def test_calls_of_many_threads_are_all_recorded_one_at_a_time(calls) -> None:
    inside, worst = 0, 0

    def observe(call: CallRecord) -> None:
        nonlocal inside, worst
        inside += 1
        worst = max(worst, inside)
        calls.append(call)
        inside -= 1

    probe = Probe(observe, lambda reason: None)

    def work() -> None:
        for _ in range(500):
            with probe.call("Nothing"):
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(call.number for call in calls) == [*range(1, 4001)] and worst == 1


class Counted(zmq.Socket):
    """A class of the program's own, with its own signature, whose results are no bytes."""

    def send(self, message):
        return super().send(message.encode())

    def recv(self):
        return super().recv().decode()


def test_a_class_of_the_programs_own_works_as_before(probe, calls, context, serve) -> None:
    serve(1)
    with probe.wrap(Counted(context, zmq.REQ)) as socket, probe.call("Ask"):
        socket.connect(ENDPOINT)
        socket.send("1234")
        assert socket.recv() == "1234" and isinstance(socket, Counted)
    (call,) = calls
    assert call.total_ns == stages_of(call)
