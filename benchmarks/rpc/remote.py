"""Peers that need a Python environment of their own, timed by themselves.

`python remote.py NAME LARGEST` says "ready", and then for each line "SIZE REPEATS" the nanoseconds of so many
round trips. Imports nothing of ours.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Echo = Callable[[int], object]


class Turn:
    """A peer's server runs only while it is the peer's turn: one that asks again and again takes a core."""

    def __init__(self, echo: Echo, server: int) -> None:
        self._echo, self._server = echo, server
        os.kill(server, signal.SIGSTOP)

    def __call__(self, size: int, repeats: int) -> list[int]:
        os.kill(self._server, signal.SIGCONT)
        try:
            return [self._once(size) for _ in range(repeats)]
        finally:
            os.kill(self._server, signal.SIGSTOP)

    def _once(self, size: int) -> int:
        begin = time.perf_counter_ns()
        self._echo(size)
        return time.perf_counter_ns() - begin


def source(largest: int) -> memoryview:
    """Memory that is in use."""
    return memoryview(bytearray(b"\x5a") * largest)


# ---- iceoryx2: request and response, both sides ask again and again ---------------------------------


def _iceoryx2_service(largest: int) -> tuple[Any, Any]:
    import iceoryx2 as iox2

    iox2.set_log_level(iox2.LogLevel.Error)
    node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)
    payload = iox2.Slice[ctypes.c_uint8]
    name = iox2.ServiceName.new(f"rpc_bench_{os.environ['RPC_BENCH']}")
    return node, node.service_builder(name).request_response(payload, payload).open_or_create()


def _fill(loaned: Any, address: int, size: int) -> Any:
    """One copy into what was loaned."""
    ctypes.memmove(ctypes.cast(loaned.payload().as_ptr(), ctypes.c_void_p).value, address, size)
    return loaned.assume_init()


def _address(payload: Any) -> int:
    return ctypes.cast(payload.as_ptr(), ctypes.c_void_p).value or 0


@contextmanager
def iceoryx2(largest: int) -> Iterator[Turn]:
    os.environ["RPC_BENCH"] = str(os.getpid())
    server = subprocess.Popen(
        [sys.executable, __file__, "serve iceoryx2", str(largest)], stdin=subprocess.PIPE
    )
    node, service = _iceoryx2_service(largest)
    client = service.client_builder().initial_max_slice_len(largest).create()
    mine = source(largest)
    address = ctypes.addressof(ctypes.c_char.from_buffer(mine))

    def echo(size: int) -> None:
        pending = _fill(client.loan_slice_uninit(size), address, size).send()
        while (response := pending.receive()) is None:
            pass
        assert response.payload().len() == size
        response.delete()
        pending.delete()

    try:
        while not service.dynamic_config.number_of_servers:
            time.sleep(0.01)
        yield Turn(echo, server.pid)
    finally:
        server.kill()
        server.wait()


def serve_iceoryx2(largest: int) -> None:
    node, service = _iceoryx2_service(largest)
    server = service.server_builder().initial_max_slice_len(largest).create()
    while os.getppid() != 1:
        request = server.receive()
        if request is None:
            continue
        size = request.payload().len()
        _fill(request.loan_slice_uninit(size), _address(request.payload()), size).send()
        request.delete()


# ---- Ray: a method of an actor -----------------------------------------------------------------------


@contextmanager
def ray_actor(largest: int) -> Iterator[Turn]:
    """A numpy array there and back, through the object store from 100 KB on."""
    import numpy
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=2 << 30)

    class Echoes:
        def echo(self, array: Any) -> Any:
            return array

        def pid(self) -> int:
            return os.getpid()

    actor = ray.remote(Echoes).remote()
    mine = numpy.frombuffer(source(largest), dtype=numpy.uint8)

    def echo(size: int) -> None:
        assert ray.get(actor.echo.remote(mine[:size])).nbytes == size

    try:
        yield Turn(echo, ray.get(actor.pid.remote()))
    finally:
        ray.shutdown()


CLIENTS = {"iceoryx2": iceoryx2, "Ray actor": ray_actor}
SERVERS = {"serve iceoryx2": serve_iceoryx2}


def main() -> None:
    name, largest = sys.argv[1], int(sys.argv[2])
    if name in SERVERS:
        SERVERS[name](largest)
        return
    with CLIENTS[name](largest) as turn:
        turn(1024, 1)
        print("ready", flush=True)
        for line in sys.stdin:
            print(*turn(*map(int, line.split())), flush=True)


if __name__ == "__main__":
    main()
