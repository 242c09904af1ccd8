"""The other end of a measurement: a separate process that receives and returns bytes.

`python -m diagnosis.partner` is told by `start` what to serve; it ends when its standard input
does, so it never outlives who started it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tensor_rpc.arrays import Array, DType
from tensor_rpc.errors import PeerGone
from tensor_rpc.options import ServerOptions
from tensor_rpc.server import Request, Server

EXCHANGE = "Exchange"
_ENDS_WITHIN_S = 10


@contextmanager
def start(endpoint: str, largest_bytes: int) -> Iterator[str]:
    """Starts one and returns its endpoint. `Exchange` takes arrays and gives as many bytes as its argument
    `bytes` says.
    """
    told = json.dumps({"endpoint": endpoint, "largest_bytes": largest_bytes})
    command = [sys.executable, "-m", "diagnosis.partner", told]
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        command,
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


def main() -> int:
    """Serves until standard input ends."""
    told = json.loads(sys.argv[1])
    largest = told["largest_bytes"]
    # Written to, so that it has its own pages: untouched memory is all one shared page of zeros.
    source = memoryview(bytearray(b"\x5a") * largest)

    def exchange(request: Request) -> Sequence[Array]:
        """As many bytes as are asked for."""
        size = int(str(request.arguments["bytes"]))
        return [Array(DType.UINT8, (size,), source[:size])] if size else []

    server = Server(
        {EXCHANGE: exchange}, ServerOptions(told["endpoint"], largest, largest, slots=1, max_clients=64)
    )
    print(server.endpoint, file=sys.stdout, flush=True)
    threading.Thread(target=_stop_at_end_of_input, args=(server,), daemon=True).start()
    server.serve()
    return 0


def _stop_at_end_of_input(server: Server) -> None:
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    sys.exit(main())
