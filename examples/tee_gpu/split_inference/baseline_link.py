"""The baseline's client with the face of the other one: what its protocol does not say, a method does."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter_ns

from flagscale_perf.rpc.arrays import Array, DType, byte_count
from flagscale_perf.rpc.costs.baseline import BaselineClient
from flagscale_perf.rpc.options import Arguments, ClientOptions, Hello, ServerOptions
from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.rpc.transport.client import Reply
from flagscale_perf.rpc.transport.endpoint import transport_of
from flagscale_perf.rpc.transport.server import Handler, Request

DESCRIBE = "Describe"
_FIELDS = ("device", "dtype", "model", "description", "max_message_bytes")
_TRIES = 9


def describing(methods: dict[str, Handler], options: ServerOptions) -> dict[str, Handler]:
    """The methods, and one more by which a client learns what another's handshake says."""
    facts = {field: getattr(options, field) for field in _FIELDS} | {
        "methods": [*methods],
        "process": os.getpid(),
    }
    text = json.dumps(facts).encode()

    def describe(request: Request) -> Sequence[Array]:
        return [Array(DType.UINT8, (len(text),), memoryview(text))]

    return methods | {DESCRIBE: describe}


class BaselineLink:
    """Arrays as bytes in one message, copied on the way; one call at a time.

    Attributes:
        hello: of this connection.
    """

    def __init__(self, options: ClientOptions, observe: Callable[[CallRecord], None]) -> None:
        self.hello = _meet(options)
        self._client = BaselineClient(options, observe)

    def loan(self, dtype: DType, shape: tuple[int, ...]) -> Array:
        """Memory of this process."""
        return Array(dtype, shape, memoryview(bytearray(byte_count(dtype, shape))))

    def submit(self, method: str, arrays: Sequence[Array], arguments: Arguments) -> _Done:
        """Calls, and waits."""
        return _Done(self._client.call(method, arrays, arguments))

    def close(self) -> None:
        """Ends the connection."""
        self._client.close()


class _Done:
    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def result(self) -> Reply:
        return self._reply


def _meet(options: ClientOptions) -> Hello:
    begun, took = perf_counter_ns(), []
    with BaselineClient(options) as client:
        (told,) = client.call(DESCRIBE, timeout_s=options.connect_timeout_s).arrays
        for _ in range(_TRIES):
            start = perf_counter_ns()
            client.call(DESCRIBE)
            took.append(perf_counter_ns() - start)
    facts = json.loads(bytes(told.data))
    endpoint = options.endpoint or ""
    return Hello(
        endpoint=endpoint, transport=transport_of(endpoint), payload="msgpack", control="zeromq",
        methods=tuple(facts.pop("methods")), arena_bytes=0, slots=1, epoch=0, client=0,
        latency_ns=int(median(took)), inline_bytes=0, arena_from_bytes=0,
        setup_ns=perf_counter_ns() - begun, **facts,
    )  # fmt: skip
