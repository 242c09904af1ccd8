"""The stages from separate calls that copy float32 to whole layers in shared memory: each one run for real,
and held against what it cannot be faster than.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter_ns
from typing import NamedTuple

import torch
from torch import Tensor

from flagscale_perf.rpc.options import Control, Payload
from flagscale_perf.rpc.traffic import CallTraffic, Pass, Stage, pass_traffic, total

from .client import GPUClient, GPUClientOptions
from .forward import ProtectedModel, SplitOptions
from .gpu_side import GpuSide
from .local_gpu import LocalGPU
from .model import DTYPES, ModelChoice

SERVER = Path(__file__).parents[1] / "server_optimized.py"
WAIT_S = 600.0  # for a server that makes a large model


class Link(NamedTuple):
    """How a server is reached, and which."""

    dtype: str
    payload: Payload
    control: Control

    @property
    def server(self) -> tuple[str, str]:
        """Type and payload of the server; the baseline has one of its own."""
        return self.dtype, "msgpack" if self.payload == "msgpack" else "auto"


@dataclass(frozen=True)
class Stop:
    """One stage of the road.

    Attributes:
        sequences: in a batch.
        micro_batches: they are run as; two or more overlap both sides' work.
    """

    name: str
    dtype: str
    split: SplitOptions = SplitOptions()
    payload: Payload = "shared"
    control: Control = "unix"
    sequences: int = 1
    micro_batches: int = 1

    @property
    def link(self) -> Link:
        """Stops with the same one share a connection."""
        return Link(self.dtype, self.payload, self.control)

    def forward_pass(self, tokens: int) -> Pass:
        """Its prefill."""
        return Pass(
            self.split.stage, self.sequences, tokens, 0, DTYPES[self.dtype].itemsize, self.split.repeat_kv
        )


GROUPED = SplitOptions(repeat_kv=False)
ROAD = (
    Stop("as it was: msgpack of bytes, float32", "float32", payload="msgpack", control="zeromq"),
    Stop("msgpack of bytes, bfloat16", "bfloat16", payload="msgpack", control="zeromq"),
    Stop("frames, float32", "float32", payload="frames", control="zeromq"),
    Stop("frames, bfloat16", "bfloat16", payload="frames", control="zeromq"),
    Stop("shared memory, float32", "float32", control="zeromq"),
    Stop("shared memory, bfloat16", "bfloat16", control="zeromq"),
    Stop("with a unix socket, float32", "float32"),
    Stop("with a unix socket, bfloat16", "bfloat16"),
    Stop("K and V not repeated", "bfloat16", GROUPED),
    Stop("4 calls a layer", "bfloat16", SplitOptions(Stage.CALLS4, False)),
    Stop("fused attention", "bfloat16", SplitOptions(Stage.FUSED_ATTENTION)),
    Stop("fused attention and MLP", "bfloat16", SplitOptions(Stage.FUSED_BLOCKS)),
    Stop("whole layers: protection given up", "bfloat16", SplitOptions(Stage.FUSED_LAYER)),
    Stop("2 sequences, K and V not repeated", "bfloat16", GROUPED, sequences=2),
    Stop("2 overlapping micro-batches of them", "bfloat16", GROUPED, sequences=2, micro_batches=2),
)


@dataclass
class Measured:
    """What a stop took, by rounds.

    Attributes:
        moved_bytes: of arrays, both ways.
        total_ns: of the forward pass.
        transport_ns: in calls, without what the server computed; none where calls overlap.
        in_process_ns: the same split in one process.
        whole_ns: transformers' own model, not split.
        copy_ns: one copy in memory of each call's arguments and results.
    """

    stop: Stop
    calls: int
    moved_bytes: int
    total_ns: list[int] = field(default_factory=list)
    transport_ns: list[int] = field(default_factory=list)
    in_process_ns: list[int] = field(default_factory=list)
    whole_ns: list[int] = field(default_factory=list)
    copy_ns: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Attributes:
        rounds: of all stops, one after another, so that what disturbs the machine meets them alike.
    """

    choice: ModelChoice = ModelChoice("small")
    tokens: int = 1024
    rounds: int = 5
    stops: Sequence[Stop] = ROAD


def measure(plan: Plan) -> list[Measured]:
    """Starts the servers, runs every stop in every round, and ends the servers."""
    with ExitStack() as stack:
        bench = _Bench(plan, stack)
        bench.round([])  # warms everything up
        measured = [bench.empty(stop) for stop in plan.stops]
        for _ in range(plan.rounds):
            bench.round(measured)
        return measured


class _Bench:
    """Servers, clients, and the same sides in this process."""

    def __init__(self, plan: Plan, stack: ExitStack) -> None:
        self._plan = plan
        self._stack = stack
        links = dict.fromkeys(stop.link for stop in plan.stops)
        self._servers = {
            server: stack.enter_context(_serving(plan, *server))
            for server in dict.fromkeys(link.server for link in links)
        }
        self._clients = {link: self._connect(link) for link in links}
        self._models = {stop: ProtectedModel(self._clients[stop.link], stop.split) for stop in plan.stops}
        self._sides = {
            dtype: GpuSide(plan.choice, DTYPES[dtype], torch.device("cpu")) for dtype, _ in self._servers
        }
        self._local = {
            alone: ProtectedModel(LocalGPU(self._sides[alone.dtype]), alone.split)
            for alone in dict.fromkeys(map(_in_process, plan.stops))
        }
        self._sizes = next(iter(self._models.values())).sizes
        torch.manual_seed(0)
        most = max(stop.sequences for stop in plan.stops)
        self._ids = torch.randint(0, self._sizes.vocab, (most, plan.tokens))
        self._copier = Copier()

    def round(self, measured: Sequence[Measured]) -> None:
        """Runs every stop once, and adds what it took; the first round adds nothing."""
        results = {each.stop: each for each in measured}
        batches = dict.fromkeys((stop.dtype, stop.sequences) for stop in self._plan.stops)
        whole = {batch: self._whole(*batch) for batch in batches}
        local = {alone: _timed(model, self._ids[: alone.sequences]) for alone, model in self._local.items()}
        for stop in self._plan.stops:
            into = results.get(stop) or self.empty(stop)
            model, sums = self._models[stop], self._clients[stop.link].statistics
            sums.clear()
            in_calls_ns = model.in_calls_ns
            into.total_ns.append(_timed(model, self._ids[: stop.sequences], stop.micro_batches))
            if stop.micro_batches == 1:
                into.transport_ns.append(model.in_calls_ns - in_calls_ns - sum(sums.server_ns.values()))
            into.in_process_ns.append(local[_in_process(stop)])
            into.whole_ns.append(whole[stop.dtype, stop.sequences])
            into.copy_ns.append(self._copier.copy(self._traffic(stop)))

    @torch.no_grad()
    def _whole(self, dtype: str, sequences: int) -> int:
        begun = perf_counter_ns()
        self._sides[dtype].model(self._ids[:sequences], logits_to_keep=1)
        return perf_counter_ns() - begun

    def empty(self, stop: Stop) -> Measured:
        """Before the first round."""
        calls = self._traffic(stop)
        whole = total(calls)
        return Measured(stop, len(calls) * stop.micro_batches, whole.sent_bytes + whole.received_bytes)

    def _traffic(self, stop: Stop) -> list[CallTraffic]:
        return pass_traffic(self._sizes, stop.forward_pass(self._plan.tokens))

    def _connect(self, link: Link) -> GPUClient:
        options = GPUClientOptions(link.payload, link.control, wait_s=WAIT_S, record=False)
        return self._stack.enter_context(GPUClient(self._servers[link.server], None, options, _say_nothing))


class Copier:
    """Copies in memory, from and to pages that were used before."""

    def __init__(self) -> None:
        self._memory = torch.zeros(2, 0, dtype=torch.uint8)

    def copy(self, calls: Sequence[CallTraffic]) -> int:
        """Nanoseconds of one copy each of what every call sends and receives."""
        sizes = [size for call in calls for size in (call.sent_bytes, call.received_bytes)]
        if max(sizes) > self._memory.shape[1]:
            self._memory = torch.zeros(2, max(sizes), dtype=torch.uint8)
        source, target = self._memory
        begun = perf_counter_ns()
        for size in sizes:
            target[:size].copy_(source[:size])
        return perf_counter_ns() - begun


def _in_process(stop: Stop) -> Stop:
    """What the same split in one process is known by."""
    return replace(stop, name="", payload="auto", control="auto", micro_batches=1)


def _timed(model: ProtectedModel, ids: Tensor, micro_batches: int = 1) -> int:
    begun = perf_counter_ns()
    model.logits(ids, micro_batches=micro_batches)
    return perf_counter_ns() - begun


@contextmanager
def _serving(plan: Plan, dtype: str, payload: str) -> Iterator[str]:
    """A server in a process of its own; its endpoint."""
    choice = plan.choice
    with TemporaryDirectory() as directory:
        endpoint = f"ipc://{directory}/gpu.ipc"
        options = {
            "--ipc-path": endpoint, "--dtype": dtype, "--payload": payload,
            "--config": choice.config, "--model": choice.directory, "--layers": choice.layers,
            "--seed": choice.seed, "--max-tokens": plan.tokens,
            "--max-batch": max(stop.sequences for stop in plan.stops),
            "--max-clients": 4,
        }  # fmt: skip
        words = [str(word) for pair in options.items() if pair[1] is not None for word in pair]
        with subprocess.Popen([sys.executable, SERVER, *words], stdout=subprocess.DEVNULL) as process:
            try:
                yield endpoint
            finally:
                process.terminate()


def _say_nothing(text: str) -> None:
    """For what a user would read."""
