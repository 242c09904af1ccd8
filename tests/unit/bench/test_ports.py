"""One way to find a port, for every process that an experiment starts."""

from __future__ import annotations

import socket

import pytest

from flagscale_perf.bench.ports import free_port
from flagscale_perf.spine.errors import PerfError


def test_a_free_one_is_found_and_one_that_is_taken_is_refused_with_its_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PerfError, match=f"^--port {port}: Address already in use; name another port, or"):
            free_port(port, "--port")
        assert free_port(None, "--port") not in (0, port)
    assert free_port(port, "--port") == port
    with pytest.raises(PerfError, match="^--port 70000: ports end at 65535; name another port"):
        free_port(70000, "--port")
