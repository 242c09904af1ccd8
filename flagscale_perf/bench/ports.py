"""A port of this machine for processes that an experiment starts."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"


def free_port() -> int:
    """Any that is free now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((HOST, 0))
        port: int = door.getsockname()[1]
        return port
