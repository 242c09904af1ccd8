"""The other end of a measurement: a separate process that receives and returns bytes.

`python -m diagnosis.partner ENDPOINT BYTES` is what `start` starts. It ends when its standard input does, so
it never outlives who started it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tensor_rpc.errors import PeerGone
from tensor_rpc.options import ServerOptions
from tensor_rpc.server import Request, Server
from tensor_rpc.wire import Array

from flagscale_perf.rpc.dtypes import DType

EXCHANGE = "Exchange"
_ENDS_WITHIN_S = 10


def pages(size: int) -> memoryview:
    """Memory with pages of its own, as it is written to: untouched memory is all one shared page of zeros."""
    return memoryview(bytearray(b"\x5a") * size)


@contextmanager
def start(endpoint: str, largest_bytes: int) -> Iterator[str]:
    """Starts one and returns its endpoint. `Exchange` takes arrays and gives as many bytes as its argument
    `bytes` says. Raises `PeerGone` where it cannot serve.
    """
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [sys.executable, "-m", "diagnosis.partner", endpoint, str(largest_bytes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
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


def main(endpoint: str, largest_bytes: int) -> None:
    """Serves until standard input ends."""
    source = pages(largest_bytes)

    def exchange(request: Request) -> Sequence[Array]:
        """As many bytes as are asked for."""
        size = int(str(request.arguments["bytes"]))
        return [Array(DType.UINT8, (size,), source[:size])] if size else []

    options = ServerOptions(endpoint, largest_bytes, largest_bytes, slots=1, max_clients=64)
    server = Server({EXCHANGE: exchange}, options)
    print(server.endpoint, flush=True)
    threading.Thread(target=_stop_at_end_of_input, args=(server,), daemon=True).start()
    server.serve()


def _stop_at_end_of_input(server: Server) -> None:
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
