"""What `--perf-prometheus-port` may say: a port of this machine alone, or an address to listen at."""

from __future__ import annotations

from flagscale_perf.spine.errors import PerfError

LOOPBACK = "127.0.0.1"
_EXAMPLE = "write for example 9400, or 0.0.0.0:9400 for every address of the machine"


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `9400`, `0.0.0.0:9400` or `[::1]:9400`. Raises PerfError."""
    host, colon, port = str(text).strip().rpartition(":")
    bare = host.removeprefix("[").removesuffix("]") if colon else LOOPBACK
    is_bracketed = bare != host
    if (
        not bare
        or not bare.isprintable()
        or any(char in " /[]" for char in bare)
        or (":" in bare and not is_bracketed)
    ):
        raise PerfError(f"{text!r} is no address to listen at; {_EXAMPLE}")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535):
        raise PerfError(f"{text!r} has no port from 1 to 65535; {_EXAMPLE}")
    return bare, int(port)
