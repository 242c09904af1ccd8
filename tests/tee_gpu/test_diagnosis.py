"""`diagnose_transport.py`, with real servers, sockets that are left over, and files in the way."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SERVE = """
import sys, zmq
with zmq.Context() as context, context.socket(zmq.REP) as server:
    server.bind(sys.argv[1])
    print(server.getsockopt_string(zmq.LAST_ENDPOINT), flush=True)
    sys.stdin.read()
"""


@contextmanager
def serving(endpoint: str, kill: bool = False) -> Iterator[tuple[str, int]]:
    """A server of somebody else, at an endpoint, with its pid."""
    command = [sys.executable, "-c", SERVE, endpoint]
    environment = os.environ | {"LLAMA_DTYPE": "float32"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        yield process.stdout.readline().strip(), process.pid
        if kill:
            process.kill()
        else:
            process.stdin.close()


@pytest.fixture
def diagnosed(repo: Path, run_python):
    few = ("--rounds", "1", "--calls", "1", "--bytes-sent", "1KiB")  # the less is measured the sooner it ends

    def run(*options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {f"LLAMA_{name}": value for name, value in variables.items()}
        script = str(repo / "examples/tee_gpu/diagnose_transport.py")
        return run_python(script, *few, *options, env=environment)

    return run


def test_a_live_server_is_named_with_its_environment(diagnosed, tmp_path: Path) -> None:
    with serving(f"ipc://{tmp_path}/x.ipc") as (endpoint, pid):
        result = diagnosed("--endpoint", endpoint, DTYPE="bfloat16")
    assert result.returncode == 0, result.stderr
    assert f"client's endpoint  {endpoint} (--endpoint)\n  state              live" in result.stdout
    assert f"listens            pid {pid}: {sys.executable} -c" in result.stdout
    assert "The server runs with LLAMA_DTYPE=float32, this shell has bfloat16." in result.stdout


def test_a_socket_that_is_left_over_is_stale(diagnosed, tmp_path: Path) -> None:
    with serving(f"ipc://{tmp_path}/x.ipc", kill=True):
        pass
    result = diagnosed(IPC_PATH=f"ipc://{tmp_path}/x.ipc")
    assert f"{tmp_path}/x.ipc is left over from a server that ended" in result.stdout
    assert "(LLAMA_IPC_PATH)\n  state              stale" in result.stdout
    (tmp_path / "x.ipc").unlink()


def test_a_client_that_asks_elsewhere_is_told_where_the_server_listens(diagnosed, tmp_path: Path) -> None:
    with serving("tcp://127.0.0.1:*") as (endpoint, pid):
        result = diagnosed("--endpoint", f"ipc://{tmp_path}/x.ipc")
    said = " ".join(result.stdout.split())
    assert f"No process listens at ipc://{tmp_path}/x.ipc: start the server." in said
    assert re.search(rf"but .*pid {pid}: .* listens at {endpoint}[:,].* give both the same", said)


def test_a_file_in_the_way_is_named_and_stays(diagnosed, tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    path.write_text("years of work")
    said = " ".join(diagnosed("--endpoint", f"ipc://{path}").stdout.split())
    assert "is not a socket: choose another path" in said
    assert path.read_text() == "years of work"


def test_own_traffic_is_predicted(diagnosed, tmp_path: Path) -> None:
    traffic = (
        "--calls",
        "1000",
        "--bytes-sent",
        "64KiB",
        "--bytes-received",
        "0",
        "--seconds",
        "100",
        "--json",
    )
    result = diagnosed(*traffic, "--endpoint", f"ipc://{tmp_path}/x.ipc")
    found = json.loads(result.stdout)
    assert set(found) == {"machine", "predicted_s", "conclusions"}
    least, most = found["predicted_s"]["msgpack over ipc"]
    assert most / least == pytest.approx(1.75 / 0.5)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--calls", "0"), "--calls 0: write how many calls there are, 1 or more"),
        (("--endpoint", "x.ipc"), "endpoint 'x.ipc' is not valid; write ipc:///PATH or tcp://HOST:PORT"),
        (("--bytes-sent", "3 apples"), "'3 apples' is not a number of bytes; write 3328MiB, 2GB or 4096"),
    ],
)
def test_a_mistake_is_said_in_one_line(diagnosed, options: tuple[str, ...], says: str) -> None:
    result = diagnosed(*options)
    assert result.returncode == 2
    assert says in result.stderr
    assert "Traceback" not in result.stderr
