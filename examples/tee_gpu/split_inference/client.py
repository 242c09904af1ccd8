"""The GPU side in another process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tensor_rpc.client import Client, Hello
from tensor_rpc.facts import facts_of
from tensor_rpc.options import ClientOptions, Payload
from tensor_rpc.tensors import array_of, dtype_of, tensor_of
from torch import Tensor

from flagscale_perf.rpc.recording import RecordingOptions, RpcRecorder
from flagscale_perf.rpc.records import CallRecord

from .gpu import Ask
from .options import DEFAULT_IPC_PATH
from .statistics import Statistics

DEFAULT_LOG_FILE = "zmq_performance.log"
_CALL_S = 300.0  # before a call is given up
_NS_PER_MS = 1_000_000
__all__ = ["DEFAULT_IPC_PATH", "DEFAULT_LOG_FILE", "GPUClient", "GPUClientOptions"]


@dataclass(frozen=True)
class GPUClientOptions:
    """What is seldom changed.

    Attributes:
        wait_s: for a server that is not there yet.
        record: whether calls are recorded at all.
        methods: only these calls are; none for all.
        directory: of the run file.
    """

    payload: Payload = "auto"
    wait_s: float = 60.0
    record: bool = True
    methods: str = ""
    directory: str = "logs/rpc"


class GPUClient:
    """A `Gpu`: its calls go to a server, are recorded, and are counted.

    Attributes:
        hello: what the server said.
        statistics: of the calls so far.
    """

    def __init__(
        self,
        ipc_path: str = DEFAULT_IPC_PATH,
        log_file: str | None = DEFAULT_LOG_FILE,
        options: GPUClientOptions | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        """Connects, and says to what. Raises PerfError."""
        options = options or GPUClientOptions()
        self.statistics = Statistics()
        self._recorder: RpcRecorder | None = None
        connection = ClientOptions(ipc_path, options.payload, _CALL_S, options.wait_s)
        self._client = Client.connect(connection, self._observe)
        self.hello = self._client.hello
        self.description = self.hello.server.description
        if options.record:
            recording = RecordingOptions(options.directory, log_file, methods=options.methods)
            self._recorder = RpcRecorder.start(facts_of(self.hello), recording, say)
        say(connected(self.hello))

    def buffer(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """In shared memory where there is some."""
        return tensor_of(self._client.loan(dtype_of(dtype), tuple(shape)))

    def submit(self, ask: Ask) -> _Pending:
        """Sends it."""
        return _Pending(self._client.submit(ask.method, [*map(array_of, ask.tensors)], ask.arguments))

    def batch_linear(self, x: Tensor, layer: int, weights: str) -> list[Tensor]:
        """The products with a layer's weights: "qkv", "o", "gate_up" or "down"; the caller's own memory."""
        request = {"tensors": [x], "layer": layer, "weights": weights}
        products: list[Tensor] = self._send_request("BatchLinear", request)["tensors"]
        return products

    def matmul(self, left: Tensor, right: Tensor, transposed: bool = False) -> Tensor:
        """`left` by `right`, or by what it is transposed, of each head; the caller's own memory."""
        request = {"tensors": [left, right], "transposed": transposed}
        (product,) = self._send_request("Matmul", request)["tensors"]
        return product

    def fused_layer(self, hidden: Tensor, layer: int = 0, cached: int = 0, sequence: int = 0) -> Tensor:
        """A whole layer at the GPU side, which this shows everything. `cached` tokens of the sequence are
        there already; the caller's own memory.
        """
        request = {"tensors": [hidden], "layer": layer, "cached": cached, "sequence": sequence}
        (output,) = self._send_request("fused_layer", request)["tensors"]
        return output

    def _send_request(self, method: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """One call, to its end: "tensors" of the request go as arrays, the rest as arguments; "tensors" of
        the reply are the caller's own. What is recorded is `GPUClientOptions.methods`' affair.
        """
        arguments = {name: value for name, value in request.items() if name != "tensors"}
        tensors = [tensor.contiguous() for tensor in request.get("tensors", ())]
        pending = self.submit(Ask(method, tensors, arguments))
        return {"tensors": [result.clone() for result in pending.result()]}

    def print_stats(self) -> None:
        """How many calls there were, what they took and moved."""
        print(self.statistics.text(self.hello.server.dtype))

    def close(self, reason: str = "completed") -> None:
        """Ends connection and recording; twice does no harm."""
        self._client.close()
        if self._recorder is not None:
            self._recorder.close(reason)
            self._recorder = None

    def _observe(self, record: CallRecord) -> None:
        self.statistics.add(record)
        if self._recorder is not None:
            self._recorder.observe(record)

    def __enter__(self) -> GPUClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self.close("completed" if kind is None else f"exception {kind.__name__}")


class _Pending:
    def __init__(self, sent: Any) -> None:
        self._sent = sent

    def result(self) -> list[Tensor]:
        return [tensor_of(array) for array in self._sent.result()]


def connected(hello: Hello) -> str:
    """What was connected to; the latency is a bound above the one measured in the handshake."""
    latency_ms = hello.latency_ns / _NS_PER_MS
    return "\n".join(
        [
            f"✓ Connected to GPU server at {hello.endpoint}",
            f"  Transport type: {hello.transport}",
            f"  Expected latency: <{_above(hello.latency_ns)} (measured: {latency_ms:.3f} ms)",
            f"  Payload: {hello.payload}",
            f"  Device: {hello.server.device}, Dtype: {hello.server.dtype}",
        ]
    )


def _above(latency_ns: int) -> str:
    """The next of 1, 2, 5, 10 ... ms above it as it is printed, in microseconds; from 0.01 ms on."""
    bound, steps = 10_000, (2, 2.5, 2)
    place = 0
    while bound <= round(latency_ns, -3):
        bound = int(bound * steps[place % 3])
        place += 1
    return f"{bound / _NS_PER_MS:g}ms"
