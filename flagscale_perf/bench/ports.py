"""A port of this machine for processes that an experiment starts."""

from __future__ import annotations

import socket

from flagscale_perf.spine.errors import PerfError

HOST = "127.0.0.1"


def free_port(wanted: int | None = None, option: str = "") -> int:
    """The wanted port, or any free one. Raises PerfError, naming the option, for one that cannot be used."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind((HOST, wanted or 0))
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or "ports end at 65535"
            raise PerfError(
                f"{option} {wanted}: {why}; name another port, or leave it out for a free one"
            ) from None
        port: int = door.getsockname()[1]
        return port
