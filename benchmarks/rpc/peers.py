"""Other ways of sending bytes to a process and getting them back, each as its own documentation uses it.

`python -m benchmarks.rpc.peers NAME ENDPOINT LARGEST` serves one; it ends with its standard input.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Client as ConnectTo
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Any

import zmq

REPO = Path(__file__).resolve().parents[2]
Echo = Callable[[int], object]
KEYS = ("CURVE_CLIENT", "CURVE_SERVER")


@contextmanager
def open_peer(name: str, directory: Path, source: memoryview) -> Iterator[Echo]:
    """Starts the peer's server and says how to send bytes of `source` there and back."""
    endpoint = str(directory / f"peer_{list(CLIENTS).index(name)}.socket")
    command = [sys.executable, "-m", "benchmarks.rpc.peers", name, endpoint, str(len(source))]
    process = subprocess.Popen(command, cwd=REPO, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        ready = process.stdout.readline().split()
        if not ready:
            raise OSError(f"{name} did not start: {' '.join(command)}")
        with CLIENTS[name](endpoint, source, ready) as echo:
            yield echo
    finally:
        process.stdin.close()
        process.wait(20)
        process.stdout.close()


# ---- ZeroMQ without anything -----------------------------------------------------------------------


@contextmanager
def bare_client(endpoint: str, source: memoryview, ready: list[str]) -> Iterator[Echo]:
    """REQ and bytes; with keys in `ready` over CURVE."""
    with zmq.Context() as context, context.socket(zmq.REQ) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        if len(ready) > 1:
            public, secret = zmq.curve_keypair()
            socket.curve_serverkey = ready[1].encode()
            socket.curve_publickey, socket.curve_secretkey = public, secret
        socket.connect(f"ipc://{endpoint}")

        def echo(size: int) -> None:
            socket.send(source[:size])
            assert len(socket.recv()) == size

        yield echo


def serve_bare(endpoint: str, largest: int) -> None:
    _serve_zeromq(endpoint, False)


def serve_curve(endpoint: str, largest: int) -> None:
    _serve_zeromq(endpoint, True)


def _serve_zeromq(endpoint: str, is_encrypted: bool) -> None:
    with zmq.Context() as context, context.socket(zmq.REP) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        public = b""
        if is_encrypted:
            public, secret = zmq.curve_keypair()
            socket.curve_server = True
            socket.curve_publickey, socket.curve_secretkey = public, secret
        socket.bind(f"ipc://{endpoint}")
        _ready(public.decode())
        while True:
            socket.send(socket.recv())


# ---- multiprocessing ---------------------------------------------------------------------------


@contextmanager
def connection_client(endpoint: str, source: memoryview, ready: list[str]) -> Iterator[Echo]:
    with ConnectTo(endpoint, family="AF_UNIX") as connection:

        def echo(size: int) -> None:
            connection.send_bytes(source[:size])
            assert len(connection.recv_bytes()) == size

        yield echo


def serve_connection(endpoint: str, largest: int) -> None:
    with Listener(endpoint, family="AF_UNIX") as listener:
        _ready("")
        with listener.accept() as connection, contextlib.suppress(EOFError):
            while True:
                connection.send_bytes(connection.recv_bytes())


# ---- gRPC ----------------------------------------------------------------------------------------

_METHOD = "/bench.Echo/Echo"
_UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


@contextmanager
def grpc_client(endpoint: str, source: memoryview, ready: list[str]) -> Iterator[Echo]:
    """Bytes as they are: no protobuf, one tobytes."""
    import grpc

    with grpc.insecure_channel(f"unix:{endpoint}", options=_UNLIMITED) as channel:
        call: Any = channel.unary_unary(_METHOD)

        def echo(size: int) -> None:
            assert len(call(source[:size].tobytes())) == size

        yield echo


def serve_grpc(endpoint: str, largest: int) -> None:
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
    server = grpc.server(ThreadPoolExecutor(1), options=_UNLIMITED)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Echo", {"Echo": handler}),))
    server.add_insecure_port(f"unix:{endpoint}")
    server.start()
    _ready("")
    server.wait_for_termination()


# ---- peers with a Python environment of their own ---------------------------------------------------


@contextmanager
def open_remote(python: Path, name: str, largest: int) -> Iterator[Callable[[int, int], list[int]]]:
    """A peer that is timed by itself, in another environment: it is asked for times, line by line."""
    script = Path(__file__).with_name("remote.py")
    command = [str(python), str(script), name, str(largest)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    sent, said = process.stdin, process.stdout
    try:
        if said.readline().strip() != "ready":
            raise OSError(f"{name} did not start; try: {' '.join(command)}")

        def timed(size: int, repeats: int) -> list[int]:
            sent.write(f"{size} {repeats}\n")
            sent.flush()
            return [int(each) for each in said.readline().split()]

        yield timed
    finally:
        sent.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        said.close()


CLIENTS = {
    "pyzmq REQ/REP": bare_client,
    "pyzmq CURVE": bare_client,
    "multiprocessing": connection_client,
    "gRPC unix": grpc_client,
}
SERVERS = {
    "pyzmq REQ/REP": serve_bare,
    "pyzmq CURVE": serve_curve,
    "multiprocessing": serve_connection,
    "gRPC unix": serve_grpc,
}


def open_all(directory: Path, source: memoryview, stack: ExitStack) -> dict[str, Echo]:
    """Every peer of this environment, by name."""
    return {name: stack.enter_context(open_peer(name, directory, source)) for name in CLIENTS}


def _ready(what: str) -> None:
    print("ready", what, flush=True)


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)  # it has nothing to put in order, and waits in its library


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    SERVERS[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
