"""The HTTP server behind --perf-prometheus-port: few clients at a time, silent ones are dropped."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from socketserver import TCPServer, ThreadingMixIn
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

MAX_CLIENTS = 16  # each takes a thread and a descriptor of the writer, which needs some for its files
CLIENT_TIMEOUT_S = 10.0  # for a client to send, and to take, something

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:
        """Keeps requests out of the console."""


class MetricsServer(ThreadingMixIn, WSGIServer):
    """Serves one application, on threads of its own, until `close`."""

    daemon_threads = True

    def __init__(self, host: str, port: int, app: App) -> None:
        """Raises OSError where that is refused."""
        self.address_family = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0][0]
        self._clients: set[Any] = set()
        super().__init__((host, port), _Handler)
        self.set_app(app)
        self._thread = Thread(target=self.serve_forever, name="flagscale_perf metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Gives the port back without waiting for clients."""
        self.shutdown()
        self.server_close()
        self._thread.join()

    def server_bind(self) -> None:
        """Binds without the base class's look-up of the host's name, which can take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for this client; it is turned away if not."""
        if len(self._clients) >= MAX_CLIENTS:
            return False
        self._clients.add(request)
        return True

    def shutdown_request(self, request: Any) -> None:
        """Makes room for another client."""
        self._clients.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores a client that hangs or is gone."""
