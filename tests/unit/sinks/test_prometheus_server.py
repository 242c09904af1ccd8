"""The server of the metrics has room for some clients, and none of them keeps the others out for good."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from flagscale_perf.sinks import prometheus_server as metrics_server
from flagscale_perf.sinks.prometheus_server import MAX_CLIENTS, MetricsServer

TURNED_AWAY = b""
ANSWER = b"seven"


def seven(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    start_response("200 OK", [])
    return [ANSWER]


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    started = MetricsServer("127.0.0.1", 0, seven)
    yield started
    started.close()


def connected(server: MetricsServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server_port), timeout=30)


def answer(client: socket.socket) -> bytes:
    """The last word of what the server says before it hangs up."""
    try:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        with client.makefile("rb") as file:
            return file.read()[-len(ANSWER) :]
    except ConnectionError:
        return TURNED_AWAY


def test_clients_that_say_nothing_leave_room_for_no_more_than_there_are_places(server: MetricsServer) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(connected(server)) for _ in range(MAX_CLIENTS)]
        assert answer(stack.enter_context(connected(server))) == TURNED_AWAY
        assert answer(silent[0]) == ANSWER
        found = TURNED_AWAY
        while found == TURNED_AWAY:  # its place is free a moment after its answer
            found = answer(stack.enter_context(connected(server)))
        assert found == ANSWER


def test_a_client_that_says_nothing_is_left_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server._Handler, "timeout", 0.01)
    server = MetricsServer("127.0.0.1", 0, seven)
    with connected(server) as client:
        assert client.recv(1) == b""
    server.close()


def test_no_name_server_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda name="": pytest.fail("a look-up may take for ever"))
    MetricsServer("127.0.0.1", 0, seven).close()


def test_a_port_in_use_is_an_error(server: MetricsServer) -> None:
    with pytest.raises(OSError, match="in use"):
        MetricsServer("127.0.0.1", server.server_port, seven)
