"""The value of `--perf-prometheus-port`: a port, served on this machine only, or an address and a port."""

from __future__ import annotations

from flagscale_perf.spine.errors import PerfError

LOOPBACK = "127.0.0.1"
_EXAMPLE = "write for example 9400, or 0.0.0.0:9400 for every address of the machine"


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `9400`, `0.0.0.0:9400` or `[::1]:9400`. Raises PerfError."""
    host, colon, port = str(text).strip().rpartition(":")
    bare = host.removeprefix("[").removesuffix("]") if colon else LOOPBACK
    if not _is_host(bare, is_bracketed=bare != host):
        raise PerfError(f"{text!r} is not an address to listen at; {_EXAMPLE}")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535):
        raise PerfError(f"{text!r} has no port from 1 to 65535; {_EXAMPLE}")
    return bare, int(port)


def _is_host(bare: str, is_bracketed: bool) -> bool:
    # An IPv6 address needs its brackets: ::1:9400 could be an address without a port.
    if ":" in bare and not is_bracketed:
        return False
    return bool(bare) and bare.isprintable() and not any(char in " /[]" for char in bare)
