"""The other end of a measurement: a separate process that receives and returns bytes.

`python -m flagscale_perf.rpc.costs.partner` is told by `start` what to serve; it ends when its standard input
does, so it never outlives who started it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from flagscale_perf.rpc.arrays import Array, DType
from flagscale_perf.rpc.costs.baseline import BaselineServer
from flagscale_perf.rpc.errors import PeerGone
from flagscale_perf.rpc.options import ServerOptions
from flagscale_perf.rpc.transport.server import Request, Server

EXCHANGE, ECHO, IN_PLACE = "Exchange", "Echo", "InPlace"
_ENDS_WITHIN_S = 10


@contextmanager
def start(kind: str, endpoint: str, largest_bytes: int) -> Iterator[str]:
    """Starts one of `kind` "server" or "baseline" and returns its endpoint.

    `Exchange` takes arrays and gives as many bytes as its argument `bytes` says; `Echo` gives what it took;
    `InPlace` gives as many bytes as it took, of memory that it did not write to.
    """
    told = json.dumps({"kind": kind, "endpoint": endpoint, "largest_bytes": largest_bytes})
    command = [sys.executable, "-m", "flagscale_perf.rpc.costs.partner", told]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        found = process.stdout.readline().strip()
        if not found:
            raise PeerGone(f"the process to measure with ended with exit code {process.wait(_ENDS_WITHIN_S)}")
        yield found
    finally:
        process.stdin.close()
        try:
            process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


class _Methods:
    def __init__(self, largest_bytes: int) -> None:
        # Written to, so that it has its own pages: untouched memory is all one shared page of zeros.
        self._source = memoryview(bytearray(b"\x5a") * largest_bytes)

    def exchange(self, request: Request) -> Sequence[Array]:
        size = int(str(request.arguments["bytes"]))
        return [Array(DType.UINT8, (size,), self._source[:size])] if size else []

    def echo(self, request: Request) -> Sequence[Array]:
        arrays: Sequence[Array] = request.arrays
        return arrays

    def in_place(self, request: Request) -> Sequence[Array]:
        return [request.reply(dtype, shape) for dtype, shape, _ in request.arrays]


def main() -> int:
    """Serves until standard input ends."""
    told = json.loads(sys.argv[1])
    largest = told["largest_bytes"]
    methods = _Methods(largest)
    table = {EXCHANGE: methods.exchange, ECHO: methods.echo, IN_PLACE: methods.in_place}
    options = ServerOptions(
        endpoint=told["endpoint"], max_message_bytes=largest, arena_bytes=largest, slots=1, max_clients=64
    )
    server: Server | BaselineServer
    server = (BaselineServer if told["kind"] == "baseline" else Server)(table, options)
    print(server.endpoint, file=sys.stdout, flush=True)
    threading.Thread(target=_stop_at_end_of_input, args=(server,), daemon=True).start()
    server.serve()
    return 0


def _stop_at_end_of_input(server: Server | BaselineServer) -> None:
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    sys.exit(main())
