"""What a session of real ZeroMQ calls is predicted to take after a change, against a second one with it.

A link with known costs lies between: what it takes by call and by byte is slept, and so is all work, as a
busy machine sleeps as well as any. The server has one thread.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, Thread
from typing import NamedTuple

import pytest
import zmq

from flagscale_perf.cli import main
from flagscale_perf.rpc.facts import RpcFacts
from flagscale_perf.rpc.records import CallRecord
from tests.rpc_sessions import make_call, write_run

KIB, REPLY_KIB = 1024, 16
SIZES_KIB = (8, 96, 160, 256, 400)


class Plant(NamedTuple):
    """What a session does.

    Attributes:
        calls: of each thread.
        scale: of the bytes of each call.
        server_ms: of a call of usual size; twice as much work is in one of twice the size where `together`.
        between_ms: the caller's own work before a call.
        call_ms, mib_ms: the link, each way.
    """

    calls: int = 30
    scale: float = 1.0
    server_ms: float = 12.0
    between_ms: float = 6.0
    threads: int = 1
    call_ms: float = 10.0
    mib_ms: float = 120.0

    def way_s(self, size: int) -> float:
        return (self.call_ms + self.mib_ms * size / KIB / KIB) / 1e3


@contextmanager
def server(context: zmq.Context) -> Iterator[str]:
    """Answers each request with as many bytes as it asks for, after so much work; says when it began."""
    endpoint = f"inproc://server-{time.monotonic_ns()}"
    socket = context.socket(zmq.ROUTER)
    socket.bind(endpoint)

    def serve() -> None:
        while True:
            client, _, said, *_ = socket.recv_multipart()
            begin_ns = time.monotonic_ns()
            asked = json.loads(said)
            if not asked:
                return
            time.sleep(asked["work_ms"] / 1e3)
            took = json.dumps([begin_ns - asked["sent_ns"], time.monotonic_ns() - begin_ns]).encode()
            socket.send_multipart([client, b"", took, bytes(asked["reply"])])

    thread = Thread(target=serve)
    thread.start()
    try:
        yield endpoint
    finally:
        with context.socket(zmq.REQ) as last:
            last.connect(endpoint)
            last.send(b"{}")
            thread.join()
        socket.close(0)


def called(socket: zmq.Socket, plant: Plant, size: int) -> CallRecord:
    """One call over the link."""
    start_ns = time.monotonic_ns()
    payload = bytes(size)
    made_ns = time.monotonic_ns()
    time.sleep(plant.way_s(size))
    asked = {"work_ms": plant.server_ms, "sent_ns": time.monotonic_ns(), "reply": REPLY_KIB * KIB}
    socket.send_multipart([json.dumps(asked).encode(), payload])
    sent_ns = time.monotonic_ns()
    said, reply = socket.recv_multipart()
    replied_ns = time.monotonic_ns()
    queue_ns, server_ns = json.loads(said)
    time.sleep(plant.way_s(len(reply)))
    end_ns = time.monotonic_ns()
    return make_call(
        start_ns=start_ns,
        total_ns=end_ns - start_ns,
        serialize_ns=made_ns - start_ns,
        send_ns=sent_ns - made_ns,
        wait_ns=max(0, replied_ns - sent_ns - queue_ns - server_ns),
        queue_ns=queue_ns,
        server_ns=server_ns,
        receive_ns=end_ns - replied_ns,
        deserialize_ns=0,
        sent_bytes=size,
        received_bytes=len(reply),
        method="Matmul",
    )


def session(directory: Path, plant: Plant) -> Path:
    """The run file of a session."""
    found, lock = list[CallRecord](), Lock()

    def calls(context: zmq.Context, endpoint: str) -> None:
        with context.socket(zmq.REQ) as socket:
            socket.connect(endpoint)
            for number in range(plant.calls):
                time.sleep(plant.between_ms / 1e3)
                size = round(SIZES_KIB[number % len(SIZES_KIB)] * KIB * plant.scale)
                one = called(socket, plant, size)
                with lock:
                    found.append(one)

    with zmq.Context() as context, server(context) as endpoint:
        threads = [Thread(target=calls, args=(context, endpoint)) for _ in range(plant.threads)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    numbered = [one._replace(number=number) for number, one in enumerate(found, 1)]
    directory.mkdir()
    return write_run(directory, numbered, RpcFacts(transport="TCP", copy_bytes_per_s=8 * 10**9))


def what_if(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, float]:
    """What it says; nothing where a busy machine has left too little of what bytes cost."""
    rc = main(["what-if", *map(str, words), "--json"])
    said = capsys.readouterr()
    assert rc == 0 or "calls that tell what they and their bytes cost" in said.err
    return {} if rc else json.loads(said.out)


TURNS = 3  # one of which the machine may spoil; alone the first one tells
USUAL = Plant()
THREE = Plant(calls=12, threads=3, server_ms=50.0)


@pytest.mark.parametrize(
    ("before", "change", "after", "gains"),
    [
        (USUAL, "bytes=0.5", USUAL._replace(scale=0.5), True),
        (USUAL, "calls=0.5", USUAL._replace(calls=15, scale=2.0, server_ms=24.0, between_ms=12.0), True),
        (USUAL, "transport=shm", USUAL._replace(mib_ms=0.0), True),
        (USUAL, "server*=0.25 between=0", USUAL._replace(server_ms=3.0, between_ms=0.0), True),
        # three callers keep the server busy: what they do beside it costs nothing, its own work all
        (THREE, "between=0", THREE._replace(between_ms=0.0), False),
        (THREE, "server*=0.6", THREE._replace(server_ms=30.0), True),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_second_session_takes_what_was_predicted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], before: Plant, change: str, after: Plant, gains: bool
) -> None:
    tried = []
    for turn in range(TURNS):
        recorded = session(tmp_path / f"before-{turn}", before)
        said = what_if(capsys, recorded, *change.split())
        seen = (
            what_if(capsys, recorded, "--check", session(tmp_path / f"after-{turn}", after)) if said else {}
        )
        tried.append((said, seen))
        if seen and seen["hit"]:
            break
    assert seen and seen["hit"], tried
    assert said["is_gain"] if gains else said["gain_ns"] < 0.1 * said["measured_ns"]
