"""`flagscale-perf serve`: the report's page, following a run, for a browser on this machine."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import stat
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.instrument import load
from flagscale_perf.analysis.job import Job, open_job
from flagscale_perf.cli.base import Command, add_cache, add_run, add_session, local_path
from flagscale_perf.cli.stopping import leave
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.packages import missing

LOOPBACK = "127.0.0.1"
MAX_PORT = 65535
POLITE = 10  # a training on the same machine goes first
OWNER_ONLY = 0o177
BACKLOG = 64
UNKNOWN_S = 15


class ServeCommand(Command):
    """Serves the report's page on loopback or a unix socket until Ctrl-C or SIGTERM."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Arguments: the run, and where to listen."""
        add_run(parser)
        add_session(parser)
        add_cache(parser)
        where = parser.add_mutually_exclusive_group()
        where.add_argument(
            "--port", type=int, default=0, metavar="N", help=f"port on {LOOPBACK} (default: any free one)"
        )
        where.add_argument(
            "--unix-socket",
            type=local_path,
            metavar="PATH",
            help="listen there instead; for an ssh tunnel, `ssh -L 8000:PATH`",
        )

    def run(self, args: Namespace) -> int:
        """Raises PerfError where there is no run, nothing to listen on, or a package is missing."""
        try:
            import uvicorn

            from flagscale_perf.report.connections import Connection
            from flagscale_perf.report.server import Feed, Secret, application
        except ImportError as error:
            raise missing(
                "starlette", error, "serve", "use flagscale-perf report --format html -o report.html"
            ) from None
        source = _Source(args.run, args.session)
        title = source.begin()
        secret = Secret()
        signal.signal(signal.SIGTERM, leave)
        with _listening(args.unix_socket, args.port) as listener:
            os.nice(POLITE)
            print(_welcome(listener, secret.token, title), flush=True)
            config = uvicorn.Config(
                application(Feed(source.read, source.stamp), secret),
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="off",
                ws="none",
                http=Connection,
                loop="asyncio",
                timeout_graceful_shutdown=1,
                timeout_keep_alive=5,
                h11_max_incomplete_event_size=16 << 10,
            )
            with contextlib.suppress(KeyboardInterrupt):
                uvicorn.Server(config).run(sockets=[listener])
        return 0


class _Source:
    """The run that is served: the newest of a directory, where no session was asked for."""

    def __init__(self, run: Path, session_id: str | None) -> None:
        self._run = run
        self._session_id = session_id
        self._has_begun = False

    def _job(self) -> Job | None:
        """As of now; None as long as no run has been there."""
        job = open_job(self._run, self._session_id)
        self._has_begun = self._has_begun or not job.is_without_run or job.logs is not None
        return job if self._has_begun else None

    def begin(self) -> str:
        """Reads it once, so that a mistake is said here and not in the browser; returns what is served.
        Raises PerfError where it cannot be read.
        """
        if (job := self._job()) is None:
            return f"{self._run}, which has no run yet: the page shows one as soon as it has begun"
        session = job.session()
        load(session.instrument).report(session)
        return str(session.path)

    def read(self) -> Report:
        """The whole report. Raises PerfError where it cannot be read."""
        if (job := self._job()) is None:
            raise PerfError(f"no run in {str(self._run)!r} yet; it is shown when its training begins")
        session = job.session()
        return load(session.instrument).report(session)

    def stamp(self) -> object:
        """Changes when the run goes on or ends, and every `UNKNOWN_S` where that is not known."""
        if (job := self._job()) is None:
            return self._run, 0, False
        session = job.session()
        is_live = session.is_live()
        state = time.time() // UNKNOWN_S if is_live is None else is_live
        return session.paths, session.size_bytes, state


@contextlib.contextmanager
def _listening(path: Path | None, port: int) -> Iterator[socket.socket]:
    if path is None:
        if not 0 <= port <= MAX_PORT:
            raise PerfError(f"--port {port} is not a port; give 1 to {MAX_PORT}, or 0 for any free one")
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _bind(listener, (LOOPBACK, port), f"port {port}", "--port 0 for any free one")
            yield listener
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        before = os.umask(OWNER_ONLY)
        try:
            _bind(listener, str(path), repr(str(path)), "give another path, or remove it")
        finally:
            os.umask(before)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def _bind(listener: socket.socket, address: tuple[str, int] | str, shown: str, cure: str) -> None:
    try:
        try:
            listener.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not isinstance(address, str) or not _is_stale(address):
                raise
            os.unlink(address)
            listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        raise PerfError(f"cannot listen on {shown}: {error.strerror or error}; {cure}") from None


def _is_stale(path: str) -> bool:
    """Whether it is a socket of ours whose server is gone."""
    found = os.lstat(path)
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        return caller.connect_ex(path) == errno.ECONNREFUSED


def _welcome(listener: socket.socket, token: str, run: str) -> str:
    address, machine = listener.getsockname(), socket.gethostname()
    if listener.family == socket.AF_UNIX:
        path = os.path.abspath(address)
        return (
            f"serving {run} on {path}; from your own machine:\n"
            f"  ssh -N -L 8000:{path} {machine}\n"
            f"  http://localhost:8000/?token={token}"
        )
    here = f"{LOOPBACK}:{address[1]}"
    return (
        f"serving {run}; open this in a browser on this machine (Ctrl-C ends it):\n"
        f"  http://{here}/?token={token}\n"
        "from another machine, first:\n"
        f"  ssh -N -L {address[1]}:{here} {machine}"
    )
