"""One way to find a port, for every process that an experiment starts."""

from __future__ import annotations

import socket

from flagscale_perf.bench.ports import HOST, free_port


def test_a_free_one_is_found() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = free_port()
        assert port not in (0, taken.getsockname()[1])
    socket.create_server((HOST, port)).close()
