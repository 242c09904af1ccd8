"""Records the calls of existing pyzmq code, with three added lines and no change to what it does.

    probe = Probe.start("ipc:///tmp/server.ipc")    # 1: a session begins
    socket = probe.wrap(socket)                     # 2: sends and receives are timed
    with probe.call("Matmul"):                      # 3: one call, from its arguments to its result
        socket.send(msgpack.packb(request))
        reply = msgpack.unpackb(socket.recv())

What comes before the first send is `serialize`, what comes behind the last receive `deserialize`. `receive`
is the time from the request's end until the reply was taken, however it is waited for: blocking, by a poller,
or in a loop of attempts. It has the server's time, too, and whatever the program does meanwhile, as nothing
here tells these apart. A call that ends without its reply has waited to its end.

For blocking sockets of type REQ, or DEALER and PAIR used like it; each thread times its own calls.
"""

from __future__ import annotations

import errno
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import wraps
from itertools import count
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from flagscale_perf.rpc.facts import PROBE, RpcFacts, transport_of
from flagscale_perf.rpc.names import recorded_name
from flagscale_perf.rpc.recording import RecordingOptions, RpcRecorder
from flagscale_perf.rpc.records import CallRecord, Status
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.records import tuple_of

if TYPE_CHECKING:
    import zmq

    Socket = TypeVar("Socket", bound=zmq.Socket[Any])

_now_ns = time.perf_counter_ns
_TIMEOUTS = {errno.EAGAIN, errno.ETIMEDOUT}
MAX_NAMES = 1024  # kept
SOCKETS = ("REQ", "DEALER", "PAIR")  # have a reply for each request
_UNTIMED = {"zmq._future": "asyncio", "zmq.green.core": "gevent"}  # whose sockets are of which kind
_MORE = 2  # zmq.SNDMORE: another part of the message follows
_ABSENT = object()
_PACKING, _GOT, _DUE, _TRYING = range(4)  # _DUE: a request is out; _TRYING: the socket would not take one


class _Marks:
    """What is known of the call under way: times are marks or sums in nanoseconds.

    Attributes:
        begin: 0 between calls.
        first, last: begin of the first send, end of the last send or receive.
        state: one of those above.
        thread, outer: whose it is, and the call around this one.
    """

    __slots__ = "begin", "first", "last", "outer", "receive", "received", "send", "sent", "state", "thread"

    def __init__(self, thread: int, outer: _Marks | None) -> None:
        self.begin = self.first = self.last = self.state = 0
        self.send = self.receive = self.sent = self.received = 0
        self.thread, self.outer = thread, outer


class Probe:
    """Records calls; `wrap` as many sockets as take part in them."""

    def __init__(self, observe: Callable[[CallRecord], None], close: Callable[[str], object]) -> None:
        """Use `start`. `observe` takes each call, `close` the reason of the end."""
        nobodys = _Marks(0, None)  # sends and receives outside any call
        self._close = close
        self._marks = ContextVar("flagscale_perf", default=nobodys)
        self._calls: dict[str, _Call] = {}
        self._classes: dict[type, type] = {}
        self._record = _recorder(observe)

    @classmethod
    def start(cls, endpoint: str, options: RecordingOptions | None = None) -> Probe:
        """Begins a session of calls to this endpoint. Raises PerfError for invalid options."""
        facts = RpcFacts(
            role=PROBE, transport=transport_of(endpoint), endpoint=endpoint, receive_has_wait=True
        )
        recorder = RpcRecorder.start(facts, options)
        return cls(recorder.observe, recorder.close)

    def wrap(self, socket: Socket) -> Socket:
        """The same socket, whose sends and receives are timed within a call from now on. Raises PerfError for
        one that is not pyzmq's, does not block, or is of a type without replies.
        """
        made = type(socket)
        if made not in self._classes.values():
            _check(socket)
            try:
                timed = self._classes.get(made) or self._classes.setdefault(made, _timed(made, self._marks))
                object.__setattr__(socket, "__class__", timed)
            except TypeError as error:
                raise PerfError(f"a socket of {made.__qualname__} cannot be timed: {error}") from error
        return socket

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

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self.close("completed" if kind is None else f"exception {kind.__name__}")


def _check(socket: Any) -> None:
    """Raises PerfError for a socket that cannot be timed."""
    import zmq

    made = type(socket)
    if not isinstance(socket, zmq.Socket):
        raise PerfError(f"probe.wrap takes a socket of pyzmq, not {made.__qualname__}")
    for module, kind in _UNTIMED.items():
        if any(base.__module__ == module for base in made.__mro__):
            raise PerfError(
                f"probe.wrap takes a blocking socket; this one is of {kind}, whose waits cannot be timed:"
                " give one of a plain zmq.Context"
            )
    name = zmq.SocketType(int(socket.type)).name
    if name not in SOCKETS:
        raise PerfError(
            f"a socket of type {name} has no reply for each request; give one of {', '.join(SOCKETS)}"
        )


def _recorder(observe: Callable[[CallRecord], None]) -> Callable[[_Marks, str, int], None]:
    numbers, waiting = count(1), deque[CallRecord]()
    turn = [observe]  # one thread at a time takes it, and none waits for it

    def record(marks: _Marks, method: str, status: int) -> None:
        """Makes the record of the call that ends now."""
        end_ns = _now_ns()
        begin_ns, state = marks.begin, marks.state
        if state == _DUE:
            marks.receive += end_ns - marks.last
        elif state == _TRYING:
            marks.send += end_ns - marks.last
        call = tuple_of(
            CallRecord,
            (
                next(numbers),
                begin_ns,
                end_ns - begin_ns,
                (marks.first or end_ns) - begin_ns,
                marks.send,
                None,
                None,
                None,
                marks.receive,
                end_ns - marks.last if state == _GOT else 0,
                marks.sent,
                marks.received,
                marks.sent,
                marks.received,
                0,
                0,
                status,
                0,
                0,
                method,
            ),
        )
        try:
            take = turn.pop()
        except IndexError:
            waiting.append(call)
        else:
            try:
                take(call)
            finally:
                turn.append(take)
        if waiting:
            _observe_waiting(waiting, turn)

    return record


def _observe_waiting(waiting: deque[CallRecord], turn: list[Callable[[CallRecord], None]]) -> None:
    while waiting:
        try:
            take = turn.pop()
        except IndexError:
            return  # the thread that has it takes these records, too
        try:
            if waiting:
                take(waiting.popleft())
        finally:
            turn.append(take)


class _Call:
    """One per method; keeps nothing of the call under way, so that each thread may have its own."""

    __slots__ = ("_marks", "_method", "_record")

    def __init__(
        self, marks: ContextVar[_Marks], record: Callable[[_Marks, str, int], None], method: str
    ) -> None:
        self._marks, self._record, self._method = marks, record, method

    def __enter__(self) -> None:
        marks, thread = self._marks.get(), get_ident()
        if marks.begin or marks.thread != thread:  # in another call, or the thread's first
            marks = _Marks(thread, marks)
            self._marks.set(marks)
        marks.first = marks.state = marks.send = marks.receive = marks.sent = marks.received = 0
        marks.begin = marks.last = _now_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        marks = self._marks.get()
        if not marks.begin:
            return  # begun in another context, and so of unknown begin
        self._record(marks, self._method, 0 if error is None else _status(error))
        marks.begin = 0
        if marks.outer is not None and marks.outer.begin:
            self._marks.set(marks.outer)


def _timed(made: type, current: ContextVar[_Marks]) -> type:
    """A subclass whose sends and receives are timed: an instance stays whatever pyzmq takes it for."""
    methods: dict[str, object] = {"send": _timed_send(made, current)}
    for name in ("recv", "recv_into"):  # older releases of pyzmq have the first only
        if hasattr(made, name):
            methods[name] = _timed_receive(getattr(made, name), current)
    names = {name: vars(made)[name] for name in ("__module__", "__doc__", "_repr_cls") if name in vars(made)}
    return type(made.__name__, (made,), names | methods | {"__qualname__": made.__qualname__})


def _timed_send(made: Any, current: ContextVar[_Marks]) -> Callable[..., Any]:
    get_marks, socket_send = current.get, made.send

    @wraps(socket_send)
    def send(socket: Any, data: Any = _ABSENT, /, *args: Any, **kwargs: Any) -> Any:
        marks = get_marks()
        state, begin_ns = marks.state, _now_ns()
        try:
            if data is _ABSENT:
                data = kwargs.get("data")
                result = socket_send(socket, **kwargs)
            elif args or kwargs:
                result = socket_send(socket, data, *args, **kwargs)
            else:
                result = socket_send(socket, data)  # unpacking nothing would take as long as all marks
        except BaseException:
            if state < _DUE:
                marks.state, marks.last = _TRYING, begin_ns
                marks.first = marks.first or begin_ns
            raise
        end_ns = _now_ns()
        if state == _DUE:
            marks.receive += begin_ns - marks.last  # for a reply that has not come
        elif state == _TRYING:
            begin_ns = marks.last
        if not marks.first:
            marks.first = begin_ns
        marks.send += end_ns - begin_ns
        marks.last = end_ns
        marks.sent += len(data) if type(data) is bytes else _size(data)
        marks.state = _behind(args, kwargs) if args or kwargs else _DUE
        return result

    return send


def _behind(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    flags = args[0] if args else kwargs.get("flags")
    return _PACKING if isinstance(flags, int) and flags & _MORE else _DUE


def _timed_receive(socket_receive: Callable[..., Any], current: ContextVar[_Marks]) -> Callable[..., Any]:
    get_marks = current.get

    @wraps(socket_receive)
    def recv(socket: Any, /, *args: Any, **kwargs: Any) -> Any:
        marks = get_marks()
        data = None
        try:
            data = socket_receive(socket, *args, **kwargs) if args or kwargs else socket_receive(socket)
        finally:
            end_ns = _now_ns()
            marks.receive += end_ns - marks.last
            marks.last = end_ns
            if data is not None:
                marks.state = _GOT
                marks.received += len(data) if type(data) is bytes else _size(data)
            if not marks.first:
                marks.first = marks.begin
        return data

    return recv


def _size(data: Any) -> int:
    """Bytes of a message, or as `recv_into` counted them; 0 for what is no bytes in a class of the program's
    own: how many were on the way is not known then.
    """
    if type(data) is int:
        return data
    try:
        return memoryview(data).nbytes
    except (TypeError, ValueError, BufferError):
        return 0


def _status(error: BaseException) -> int:
    is_timeout = getattr(error, "errno", None) in _TIMEOUTS or isinstance(error, TimeoutError)
    return int(Status.TIMEOUT if is_timeout else Status.FAILED)
