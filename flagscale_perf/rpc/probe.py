"""Records the calls of existing pyzmq code, with three added lines and no change to what it does.

    probe = Probe.start("ipc:///tmp/server.ipc")    # 1: a session begins
    socket = probe.wrap(socket)                     # 2: sends and receives are timed
    with probe.call("Matmul"):                      # 3: one call, from its arguments to its result
        socket.send(msgpack.packb(request))
        reply = msgpack.unpackb(socket.recv())

What comes before the first send is `serialize`, what comes behind the last receive `deserialize`; `receive`
has the wait for the reply and the server's time, too, as nothing else tells them apart. For blocking sockets,
one call at a time: REQ, or DEALER used like it.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from types import FunctionType, MethodType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from flagscale_perf.rpc.facts import PROBE, RpcFacts, transport_of
from flagscale_perf.rpc.names import recorded_name
from flagscale_perf.rpc.recording import RecordingOptions, RpcRecorder
from flagscale_perf.rpc.records import CallRecord, Status
from flagscale_perf.spine.records import tuple_of

if TYPE_CHECKING:
    import zmq

_now_ns = time.perf_counter_ns
_TIMEOUTS = {errno.EAGAIN, errno.ETIMEDOUT}
# What is known of the call under way, by its place in a list: of all that Python has, that takes least time.
MAX_NAMES = 1024  # kept
_BEGIN, _FIRST_SEND, _LAST_RECEIVE, _SEND, _RECEIVE, _SENT, _RECEIVED = range(7)
_NOTHING = [0] * 7


class Probe:
    """Records calls; `wrap` as many sockets as take part in them."""

    def __init__(self, observe: Callable[[CallRecord], None], close: Callable[[str], object]) -> None:
        """Use `start`. `observe` takes each call, `close` the reason of the end."""
        self._close = close
        self._marks = _NOTHING.copy()
        self._calls: dict[str, _Call] = {}
        self._record = _recorder(self._marks, observe)

    @classmethod
    def start(cls, endpoint: str, options: RecordingOptions | None = None) -> Probe:
        """Begins a session of calls to this endpoint. Raises PerfError for invalid options."""
        facts = RpcFacts(
            role=PROBE, transport=transport_of(endpoint), endpoint=endpoint, receive_has_wait=True
        )
        recorder = RpcRecorder.start(facts, options)
        return cls(recorder.observe, recorder.close)

    def wrap(self, socket: zmq.Socket[bytes]) -> Any:
        """The same socket, with its sends and receives timed within a call."""
        return _Socket(socket, self._marks)

    def call(self, method: str) -> _Call:
        """A context manager around one call of this method, of any name."""
        found = self._calls.get(method) if type(method) is str else None
        if found is None:
            found = _Call(self._marks, self._record, recorded_name(method))
            if type(method) is str and len(self._calls) < MAX_NAMES:  # names may be made anew for each call
                self._calls[method] = found
        return found

    def close(self, reason: str = "completed") -> None:
        """Ends the session, and waits briefly for its files."""
        self._close(reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self.close("completed" if kind is None else f"exception {kind.__name__}")


def _recorder(marks: list[int], observe: Callable[[CallRecord], None]) -> Callable[[str, int], None]:
    number = 0

    def record(method: str, status: int) -> None:
        """Makes the record of the call that ends now."""
        nonlocal number
        number += 1
        end_ns = _now_ns()
        begin_ns, first_send_ns, last_receive_ns, send_ns, receive_ns, sent, received = marks
        serialize_ns = (first_send_ns or end_ns) - begin_ns
        deserialize_ns = end_ns - (last_receive_ns or end_ns)
        observe(
            tuple_of(
                CallRecord,
                (
                    number,
                    begin_ns,
                    end_ns - begin_ns,
                    serialize_ns,
                    send_ns,
                    0,
                    None,
                    None,
                    receive_ns,
                    deserialize_ns,
                    sent,
                    received,
                    sent,
                    received,
                    0,
                    0,
                    status,
                    0,
                    0,
                    method,
                ),
            )
        )

    return record


class _Call:
    """One per method; handles one call at a time."""

    __slots__ = ("_marks", "_method", "_record")

    def __init__(self, marks: list[int], record: Callable[[str, int], None], method: str) -> None:
        self._marks, self._record, self._method = marks, record, method

    def __enter__(self) -> None:
        self._marks[:] = _NOTHING
        self._marks[_BEGIN] = _now_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._record(self._method, 0 if error is None else _status(error))


class _Socket:
    """A pyzmq socket; everything except sending and receiving is passed through."""

    def __init__(self, socket: Any, marks: list[int]) -> None:
        self.__dict__.update(
            _socket=socket, send=_timed_send(socket.send, marks), recv=_timed_receive(socket.recv, marks)
        )

    def __getattr__(self, name: str) -> Any:
        """Passed through; `send_json`, `recv_multipart` and the like go through `send` and `recv` here."""
        socket = self._socket
        function = getattr(type(socket), name, None) if name.startswith(("send_", "recv_")) else None
        return MethodType(function, self) if isinstance(function, FunctionType) else getattr(socket, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._socket, name, value)  # options such as `linger`

    def __enter__(self) -> Self:
        self._socket.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._socket.__exit__(*error)


def _timed_send(socket_send: Callable[..., Any], marks: list[int]) -> Callable[..., Any]:
    def send(data: Any, *args: Any, **kwargs: Any) -> Any:
        begin_ns = _now_ns()
        result = socket_send(data, *args, **kwargs)
        marks[_SEND] += _now_ns() - begin_ns
        marks[_SENT] += len(data) if type(data) is bytes else memoryview(data).nbytes
        if not marks[_FIRST_SEND]:
            marks[_FIRST_SEND] = begin_ns
        return result

    return send


def _timed_receive(socket_receive: Callable[..., Any], marks: list[int]) -> Callable[..., Any]:
    def recv(*args: Any, **kwargs: Any) -> Any:
        begin_ns = _now_ns()
        data = socket_receive(*args, **kwargs)
        marks[_LAST_RECEIVE] = end_ns = _now_ns()
        marks[_RECEIVE] += end_ns - begin_ns
        marks[_RECEIVED] += len(data) if type(data) is bytes else memoryview(data).nbytes
        return data

    return recv


def _status(error: BaseException) -> int:
    is_timeout = getattr(error, "errno", None) in _TIMEOUTS or isinstance(error, TimeoutError)
    return int(Status.TIMEOUT if is_timeout else Status.FAILED)
