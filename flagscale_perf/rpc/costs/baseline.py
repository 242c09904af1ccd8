"""The baseline that other transports are compared with: arrays as bytes within one msgpack message, sent
through ZeroMQ's REQ and REP sockets, which copy it. Not meant for anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import msgpack
import zmq

from flagscale_perf.rpc.arrays import Array, DType
from flagscale_perf.rpc.errors import CallTimeout, InvalidMessage, RemoteFailure
from flagscale_perf.rpc.options import Arguments, ClientOptions, ServerOptions
from flagscale_perf.rpc.records import CallRecord, Status
from flagscale_perf.rpc.stages import told_apart
from flagscale_perf.rpc.transport.client import Reply
from flagscale_perf.rpc.transport.endpoint import client_endpoint, server_endpoint
from flagscale_perf.rpc.transport.server import Handler, Request
from flagscale_perf.rpc.transport.wake import Wake
from flagscale_perf.spine.clock import boot_id, monotonic_ns


class BaselineClient:
    """Calls methods of a `BaselineServer`, as `Client` does for a `Server`: one call at a time."""

    def __init__(self, options: ClientOptions, observe: Callable[[CallRecord], None] | None = None) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.REQ)
        # Without these a REQ socket is unusable after one missing reply.
        for option in (zmq.REQ_RELAXED, zmq.REQ_CORRELATE):
            self._socket.setsockopt(option, 1)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, 2 * options.max_message_bytes)
        self._socket.connect(client_endpoint(options))
        self._observe, self._timeout_s, self._number = observe, options.timeout_s, 0
        self._clock = boot_id()

    def call(
        self,
        method: str,
        arrays: Sequence[Array] = (),
        arguments: Arguments | None = None,
        timeout_s: float | None = None,
    ) -> Reply:
        """Calls a method. Raises an RpcError: CallTimeout, RemoteFailure, InvalidMessage."""
        self._number += 1
        start = monotonic_ns()
        message = _pack(arrays, {"method": method, "arguments": dict(arguments or {})})
        serialized = monotonic_ns()
        self._socket.send(message)
        sent = monotonic_ns()
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        if not self._socket.poll(round(limit_s * 1000)):
            raise CallTimeout(f"{method}: no reply within {limit_s:g} s")
        arrived = monotonic_ns()
        reply = self._socket.recv()
        received = monotonic_ns()
        found, rest = _unpack(reply)
        end = monotonic_ns()
        if rest["error"]:
            raise RemoteFailure(method, "Exception", str(rest["error"]), "")
        if self._observe is not None:
            began = rest["begun_ns"] - serialized if rest["clock"] == self._clock else 0
            carried = told_apart(
                sent - serialized, arrived - serialized, (0, rest["server_ns"], max(0, began))
            )
            send, wait, _, server = carried
            self._observe(
                CallRecord(
                    self._number, start, end - start, serialized - start, send,
                    wait, None, server, received - arrived, end - received,
                    _bytes(arrays), _bytes(found), len(message), len(reply), 0, 0,
                    Status.OK, _dtype(arrays or found), 0, method,
                )
            )  # fmt: skip
        return Reply(found, rest["arguments"])

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BaselineServer:
    """Answers one call after another.

    Attributes:
        endpoint: the actual one.
    """

    def __init__(self, methods: Mapping[str, Handler], options: ServerOptions) -> None:
        self._methods = methods
        self._clock = boot_id()
        self._stopping = False
        self._wake = Wake()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, 2 * options.max_message_bytes)
        self._socket.bind(server_endpoint(options))
        self.endpoint: str = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def serve(self) -> None:
        """Runs until `stop`, SIGINT or SIGTERM, then closes the socket."""
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._wake.descriptor, zmq.POLLIN)
        try:
            with self._wake.rung_by_signals(self.stop):
                while not self._stopping:
                    ready = dict(poller.poll())
                    if self._wake.descriptor in ready:
                        self._wake.drain()
                    if self._socket in ready:
                        self._socket.send(self._answer(self._socket.recv()))
        finally:
            self._socket.close()
            self._context.term()
            self._wake.close()

    def stop(self) -> None:
        """Ends `serve`; may be called from any thread or signal handler."""
        self._stopping = True
        self._wake.ring()

    def _answer(self, message: bytes) -> bytes:
        """The reply; an exception of the method is sent to the caller."""
        start = monotonic_ns()
        try:
            arrays, rest = _unpack(message)
            request = Request(rest["method"], arrays, rest["arguments"], 0)
            found = self._methods[request.method](request)
        except Exception as raised:  # a method may raise anything; it is reported to the caller
            return _pack((), self._reply({}, f"{type(raised).__name__}: {raised}", start))
        return _pack(found, self._reply(request.results, "", start))

    def _reply(self, arguments: Mapping[str, Any], error: str, start_ns: int) -> dict[str, Any]:
        return {
            "arguments": dict(arguments),
            "error": error,
            "server_ns": monotonic_ns() - start_ns,
            "begun_ns": start_ns,
            "clock": self._clock,
        }


def _pack(arrays: Sequence[Array], rest: Mapping[str, Any]) -> bytes:
    """One message; every array is copied twice."""
    parts = [{"buffer": data.tobytes(), "shape": shape, "dtype": int(dtype)} for dtype, shape, data in arrays]
    packed: bytes = msgpack.packb({"arrays": parts, **rest})
    return packed


def _unpack(message: bytes) -> tuple[list[Array], dict[str, Any]]:
    """The arrays of a message, copied once more, and its other content. Raises InvalidMessage."""
    try:
        content = msgpack.unpackb(message)
        arrays = [
            Array(DType(part["dtype"]), tuple(part["shape"]), memoryview(part["buffer"]))
            for part in content.pop("arrays")
        ]
    except (ValueError, TypeError, KeyError, AttributeError, msgpack.UnpackException) as error:
        raise InvalidMessage(
            f"a message of {len(message)} bytes that is not one of the baseline's: {error}"
        ) from error
    return arrays, content


def _bytes(arrays: Sequence[Array]) -> int:
    return sum(len(array.data) for array in arrays)


def _dtype(arrays: Sequence[Array]) -> int:
    return int(max(arrays, key=lambda array: len(array.data)).dtype) if arrays else 0
