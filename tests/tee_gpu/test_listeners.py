"""What stands at an endpoint, in every state that it can be in."""

from __future__ import annotations

import os
import pwd
import socket
from pathlib import Path

import pytest
from diagnosis.listeners import EndpointState, look_at

from flagscale_perf.spine.errors import PerfError

ME = pwd.getpwuid(os.getuid()).pw_name


def bound(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    path.chmod(0o600)
    return made


def test_nothing_there(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/none.ipc"
    assert look_at(endpoint) == EndpointState(endpoint, "missing")


def test_a_regular_file_is_no_socket_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    path.write_text("years of work")
    path.chmod(0o640)
    assert look_at(f"ipc://{path}") == EndpointState(f"ipc://{path}", "not a socket", (), "0640", ME)
    assert path.read_text() == "years of work"


def test_a_live_socket_names_its_process(tmp_path: Path) -> None:
    path = tmp_path / "a b.ipc"  # a space in a path is part of it
    with bound(path) as server:
        server.listen()
        state = look_at(f"ipc://{path}")
    assert (state.kind, state.mode, state.owner) == ("live", "0600", ME)
    assert [each.pid for each in state.listeners] == [os.getpid()]
    mine = Path("/proc/self/cmdline").read_text().split("\0")[0]
    assert state.listeners[0].command.startswith(mine)


def test_a_socket_that_nobody_listens_at_is_stale(tmp_path: Path) -> None:
    path = tmp_path / "left.ipc"
    with bound(path) as server:
        server.listen()
    assert look_at(f"ipc://{path}").kind == "stale"


def test_two_servers_at_one_path_are_both_named(tmp_path: Path) -> None:
    path = tmp_path / "taken.ipc"
    with bound(path) as first:
        first.listen()
        path.unlink()
        with bound(path) as second:
            second.listen()
            state = look_at(f"ipc://{path}")
    assert [each.pid for each in state.listeners] == [os.getpid()]  # both are this process's


def test_a_port_of_tcp_is_live_while_somebody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        state = look_at(endpoint)
        assert (state.kind, [each.pid for each in state.listeners]) == ("live", [os.getpid()])
    assert look_at(endpoint) == EndpointState(endpoint, "closed")


@pytest.mark.parametrize(
    "text", ["", "ipc://", "tcp://127.0.0.1", "tcp://host:*", "/tmp/x.ipc", "udp://h:1", "inproc://x"]
)
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(PerfError, match="write ipc:///PATH or tcp://HOST:PORT"):
        look_at(text)
