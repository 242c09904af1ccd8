"""A server of a few methods in a process of its own: `python -m tests.tee_gpu.echo_server JSON`.

It prints its endpoint when it listens. Each test that needs another process at the other end uses it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tensor_rpc.options import ServerOptions
from tensor_rpc.server import Request, Server
from tensor_rpc.wire import Array

from flagscale_perf.rpc.dtypes import DType


def echo(request: Request) -> list[Array]:
    return request.arrays


def told(request: Request) -> list[Array]:
    """The arguments that came, as JSON."""
    text = json.dumps(request.arguments).encode()
    return [Array(DType.UINT8, (len(text),), memoryview(text))]


def fail(request: Request) -> list[Array]:
    raise ValueError(f"cannot use {request.arguments}")


def wait(request: Request) -> list[Array]:
    """For so long, or until there is a file of that name."""
    until = request.arguments.get("until")
    while until is not None and not os.path.exists(str(until)):
        time.sleep(0.005)
    time.sleep(float(request.arguments.get("seconds", 0)))  # type: ignore[arg-type]
    return []


def die(request: Request) -> list[Array]:
    os.kill(os.getpid(), 9)
    return []


def make(request: Request) -> list[Array]:
    size = int(request.arguments["bytes"])  # type: ignore[arg-type]
    result = request.reply(DType.UINT8, (size,))
    result.data[:] = bytes([7]) * size
    return [result]


def sink(request: Request) -> list[Array]:
    return []


METHODS = {"Echo": echo, "Fail": fail, "Wait": wait, "Die": die, "Make": make, "Sink": sink, "Told": told}


@contextmanager
def serving(**options: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its endpoint; told to end, and waited for, on leaving."""
    command = [sys.executable, "-m", "tests.tee_gpu.echo_server", json.dumps(options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def main() -> None:
    server = Server(METHODS, ServerOptions(**json.loads(sys.argv[1])))
    print(server.endpoint, flush=True)
    server.serve()


if __name__ == "__main__":
    main()
