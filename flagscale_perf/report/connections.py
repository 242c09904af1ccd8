"""Connections of `flagscale-perf serve`, closed where no request arrives."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 2.0  # for the whole head of a request, from the connection or the last answer on
MOST_WAITING = 64  # connections without a request, of which the oldest goes when one more comes


class Connection(H11Protocol):
    """A connection that is closed where the head of a request does not arrive in time."""

    _waiting: ClassVar[dict[Connection, None]] = {}  # the oldest first
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by the event loop."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._wait_no_more()

    def on_response_complete(self) -> None:
        """Called when an answer was sent."""
        super().on_response_complete()
        if not self.transport.is_closing() and self.cycle.response_complete:
            self._wait()

    def _wait(self) -> None:
        self._waiting[self] = None
        self._deadline = self.loop.call_later(HEAD_S, self.transport.abort)
        if len(self._waiting) > MOST_WAITING:
            oldest = next(iter(self._waiting))
            oldest._wait_no_more()
            oldest.transport.abort()

    def _wait_no_more(self) -> None:
        self._waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
