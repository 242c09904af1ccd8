"""Our own ways of carrying calls, and the baseline: each with a server process of its own, and a
recorder that gets the record of every call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.rpc.peers import Echo
from flagscale_perf.rpc.arrays import Array, DType
from flagscale_perf.rpc.costs.baseline import BaselineClient
from flagscale_perf.rpc.costs.partner import ECHO, IN_PLACE, start
from flagscale_perf.rpc.facts import RpcFacts
from flagscale_perf.rpc.options import ClientOptions, Control, Payload
from flagscale_perf.rpc.recording import Observe, RecordingOptions, RpcRecorder
from flagscale_perf.rpc.transport.client import Client

MARGIN = 1 << 16
UNIX, ZEROMQ = "ours: shared, unix", "ours: shared, ZeroMQ"
AUTO, FRAMES = "ours: auto", "ours: frames, ZeroMQ"
SEALED = "ours: sealed, unix"
PLACED_UNIX, PLACED_ZEROMQ = "ours: in place, unix", "ours: in place, ZeroMQ"
BASELINE, BASELINE_TCP = "msgpack ipc", "msgpack tcp"


class Kind(NamedTuple):
    """How one is connected."""

    payload: Payload
    control: Control
    seal: bool = False
    is_placed: bool = False
    endpoint: str = ""


KINDS = {
    UNIX: Kind("shared", "unix"),
    ZEROMQ: Kind("shared", "zeromq"),
    AUTO: Kind("auto", "auto"),
    FRAMES: Kind("frames", "zeromq"),
    SEALED: Kind("shared", "unix", seal=True),
    PLACED_UNIX: Kind("shared", "unix", is_placed=True),
    PLACED_ZEROMQ: Kind("shared", "zeromq", is_placed=True),
    BASELINE: Kind("msgpack", "zeromq"),
    BASELINE_TCP: Kind("msgpack", "zeromq", endpoint="tcp://127.0.0.1:*"),
}


def open_all(
    directory: Path, source: memoryview, stack: ExitStack, names: Iterable[str] = tuple(KINDS)
) -> dict[str, Echo]:
    """Every one of `names`."""
    observe = _recorder(directory / "records", stack).observe
    opened = (_open(KINDS[name], directory / f"{n}.ipc", source, observe) for n, name in enumerate(names))
    return {name: stack.enter_context(each) for name, each in zip(names, opened, strict=True)}


@contextmanager
def _open(kind: Kind, path: Path, source: memoryview, observe: Observe) -> Iterator[Echo]:
    largest = len(source) + MARGIN
    server = "baseline" if kind.payload == "msgpack" else "server"
    with start(server, kind.endpoint or f"ipc://{path}", largest) as endpoint:
        options = ClientOptions(
            endpoint=endpoint,
            payload=kind.payload,
            control=kind.control,
            seal=kind.seal,
            max_message_bytes=largest,
        )
        if server == "baseline":
            with BaselineClient(options, observe) as baseline:
                yield _copied(baseline, source)
            return
        with Client.connect(options, observe) as client:
            asked = (kind.payload, kind.control)
            got = (client.hello.payload, client.hello.control)
            if "auto" not in asked and asked != got:
                raise OSError(f"asked for {asked}, and the server has {got}")
            yield _placed(client) if kind.is_placed else _copied(client, source)


def _recorder(directory: Path, stack: ExitStack) -> RpcRecorder:
    """As programs have it: every call's record goes through the ring to a writer process."""
    options = RecordingOptions(str(directory), log_file=None)
    return stack.enter_context(RpcRecorder.start(RpcFacts(), options, lambda line: None))


def _copied(client: Client | BaselineClient, source: memoryview) -> Echo:
    """Memory of ours there, and the server's there as well: one copy each way, at least."""

    def echo(size: int) -> None:
        reply = client.call(ECHO, [Array(DType.UINT8, (size,), source[:size])])
        assert len(reply.arrays[0].data) == size

    return echo


def _placed(client: Client) -> Echo:
    """The arrays are made where they are read."""

    def echo(size: int) -> None:
        reply = client.call(IN_PLACE, [client.loan(DType.UINT8, (size,))])
        assert len(reply.arrays[0].data) == size

    return echo
