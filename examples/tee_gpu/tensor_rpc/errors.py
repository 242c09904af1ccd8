"""The errors of calls; each knows the `Status` for its record."""

from __future__ import annotations

from typing import ClassVar

from flagscale_perf.rpc.records import Status
from flagscale_perf.spine.errors import PerfError


class RpcError(PerfError):
    """A connection or a call that failed. The text says what happened and what to do."""

    status: ClassVar[Status] = Status.FAILED


class CallTimeout(RpcError):
    """No reply before the deadline. The server may still carry the call out."""

    status = Status.TIMEOUT


class PeerGone(RpcError):
    """The other process ended or was started again, or the connection broke. A new `Client` is needed."""

    status = Status.PEER_GONE


class Refused(RpcError):
    """Against a limit or a rule of either side: the call was never carried out."""

    status = Status.REFUSED


class InvalidMessage(RpcError):
    """The other process sent something that does not follow the protocol."""

    status = Status.INVALID


class RemoteFailure(RpcError):
    """The method raised an error at the server.

    Attributes:
        kind: the error's type there.
        traceback_text: the server's traceback.
    """

    status = Status.FAILED

    def __init__(self, method: str, kind: str, text: str, traceback_text: str) -> None:
        super().__init__(f"{method} failed at the server: {kind}: {text}\n{traceback_text}".rstrip())
        self.kind = kind
        self.traceback_text = traceback_text


def error_of(what: str, status: int, kind: str, text: str, traceback_text: str) -> RpcError:
    """The error that a server's answer represents."""
    text = _printable(text)
    if status == Status.FAILED:
        return RemoteFailure(what, _printable(kind), text, _printable(traceback_text))
    if status == Status.PEER_GONE:
        return PeerGone(text)
    if status == Status.INVALID:
        return InvalidMessage(f"the server could not use what it got: {text}")
    return Refused(f"{what} was refused by the server: {text}")


def _printable(text: str) -> str:
    """Without escape codes, as the text goes to a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)
