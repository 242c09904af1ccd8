"""The GPU side as a server."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from tensor_rpc.options import ServerOptions
from tensor_rpc.server import Handler, Request
from tensor_rpc.tensors import dtype_of, tensor_of
from tensor_rpc.wire import Array
from torch import Tensor

from flagscale_perf.rpc.facts import SERVER, RpcFacts, transport_of
from flagscale_perf.rpc.peers import ServedRings
from flagscale_perf.rpc.recording import RecordingOptions, RpcRecorder
from flagscale_perf.rpc.records import ServedRecord
from split_inference.traffic import ModelSizes, Pass, Stage, pass_traffic

from .gpu_side import GpuSide, Work
from .methods import METHODS
from .model import model_sizes

Observe = Callable[[ServedRecord], None]
_ALIGNMENT = 3 * 4096  # what the arrays of one call may lose in shared memory, each to its own page
_LEAST_MOST_BYTES = 256 * 2**20  # a larger batch than expected goes without shared memory


@dataclass(frozen=True)
class Capacity:
    """The largest forward pass that shared memory is made for.

    Attributes:
        tokens: of a sequence, those in the key-value cache included.
        slots: calls of one client that may be under way: its micro-batches.
    """

    tokens: int = 1024
    batch: int = 1
    slots: int = 2
    clients: int = 8


def handlers(side: GpuSide) -> dict[str, Handler]:
    """The methods, as a server takes them."""
    return {name: _handler(side, run) for name, run in METHODS.items()}


def server_options(side: GpuSide, capacity: Capacity, endpoint: str) -> ServerOptions:
    """Sized by the model: no call of a pass that `capacity` allows is larger."""
    most = largest_call(model_sizes(side.model.config), capacity, side.dtype.itemsize)
    return ServerOptions(
        endpoint=endpoint, max_message_bytes=max(most, _LEAST_MOST_BYTES),
        arena_bytes=most * capacity.slots, slots=capacity.slots, max_clients=capacity.clients,
        device=str(side.device), dtype=str(side.dtype), description=side.describe(),
    )  # fmt: skip


@contextmanager
def recording(directory: str | None, options: ServerOptions) -> Iterator[Observe]:
    """What takes the records of this side's calls: for the clients' sessions, or for one of its own."""
    if directory is None:
        rings = ServedRings(os.getpid())
        yield rings.observe
        rings.close()
        return
    facts = RpcFacts(
        role=SERVER, endpoint=options.endpoint, transport=transport_of(options.endpoint),
        device=options.device, dtype=options.dtype, model=json.loads(options.description),
    )  # fmt: skip
    with RpcRecorder.start(facts, RecordingOptions(directory, log_file=None)) as recorder:
        yield recorder.observe


def largest_call(sizes: ModelSizes, capacity: Capacity, item_bytes: int) -> int:
    """Bytes of the arrays of the largest call or reply, with room for their alignment."""
    run = Pass(Stage.CALLS6, capacity.batch, capacity.tokens, 0, item_bytes)
    calls = pass_traffic(sizes, run)
    init = 8 * (sizes.layers + 1) * (sizes.hidden + sizes.head_dim) + 8 * sizes.head_dim + 8
    return max(init, *(max(call.sent_bytes, call.received_bytes) for call in calls)) + _ALIGNMENT


def _handler(side: GpuSide, run: Callable[[GpuSide, Work], None]) -> Handler:
    @torch.no_grad()
    def handle(request: Request) -> Sequence[Array]:
        replies: list[Array] = []

        def reply(dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
            replies.append(request.reply(dtype_of(dtype), shape))
            return tensor_of(replies[-1])

        tensors = [tensor_of(array) for array in request.arrays]
        work = Work(side, tensors, request.arguments, reply, request.client)
        run(side, work)
        work.finish()
        return replies

    return handle
