"""Where a server listens."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from flagscale_perf.rpc.errors import Refused
from flagscale_perf.rpc.options import ClientOptions, ServerOptions

TRANSPORTS = {"ipc": "IPC", "tcp": "TCP", "inproc": "INPROC"}


def transport_of(endpoint: str) -> str:
    """ "IPC", "TCP" or "INPROC". Raises `Refused`."""
    scheme, _, rest = endpoint.partition("://")
    if scheme not in TRANSPORTS or not rest:
        raise Refused(f"endpoint {endpoint!r}: write ipc:///PATH, tcp://ADDRESS:PORT or inproc://NAME")
    return TRANSPORTS[scheme]


def private_directory() -> Path:
    """Of this user alone, made where it is missing."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    path = (
        Path(base, "flagscale_perf") if base else Path(tempfile.gettempdir(), f"flagscale_perf-{os.getuid()}")
    )
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def client_endpoint(options: ClientOptions) -> str:
    """The one to connect to."""
    endpoint = options.endpoint or f"ipc://{private_directory()}/rpc.ipc"
    transport_of(endpoint)
    return endpoint


def server_endpoint(options: ServerOptions) -> str:
    """The one to bind."""
    endpoint = options.endpoint or f"ipc://{private_directory()}/rpc.ipc"
    transport_of(endpoint)
    return endpoint


def clock_domain() -> str:
    """Equal for processes that read the same monotonic clock."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.stat('/proc/self/ns/time').st_ino}"
