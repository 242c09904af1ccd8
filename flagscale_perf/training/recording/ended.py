"""How a training ended, by what its loop raised."""

from __future__ import annotations

import re

LOST_CONNECTION = "another rank has closed its connection: "  # how the event of that begins
_CLOSED = re.compile("Connection (?:closed|reset) by peer|ncclRemoteError|remote process exited")


def end_reason(error: BaseException | None) -> str:
    """How a training ended, for `RunEnd.reason`; `error` is what its loop raised."""
    if error is None:
        return "completed"
    if isinstance(error, SystemExit):
        return "completed" if error.code in (None, 0) else f"exit {error.code}"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return f"exception {type(error).__name__}"


def lost_connection(error: BaseException | None) -> str:
    """What an error of a collective says of a connection that its other end has closed; "" for any other."""
    text = str(error) if isinstance(error, RuntimeError) else ""
    found = _CLOSED.search(text) if "gloo" in text or "NCCL" in text else None
    return f"{LOST_CONNECTION}{type(error).__name__}: {found[0]}" if found else ""
