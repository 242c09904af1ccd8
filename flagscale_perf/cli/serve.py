"""`flagscale-perf serve`: the report's page, following a run, for a browser on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.job import Job
from flagscale_perf.analysis.job_report import report_of
from flagscale_perf.analysis.session import Session
from flagscale_perf.cli.base import Command, add_cache, add_instrument, add_run, add_session
from flagscale_perf.cli.predicting import answer
from flagscale_perf.cli.stopping import leave
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.packages import missing
from flagscale_perf.store.runs import files_near

LOOPBACK = "127.0.0.1"
MAX_PORT = 65535
POLITE = 10  # a training on the same machine goes first
BACKLOG = 64
UNKNOWN_S = 15
LOOK_S = 30.0  # between looks at what else was recorded of the job


class ServeCommand(Command):
    """Serves the report's page on loopback until Ctrl-C or SIGTERM."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Arguments: the run, and where to listen."""
        add_run(parser)
        which = parser.add_mutually_exclusive_group()
        add_session(which)
        add_instrument(which)
        add_cache(parser)
        parser.add_argument(
            "--port", type=int, default=0, metavar="N", help=f"port on {LOOPBACK} (default: any free one)"
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
        source = _Source(args.run, args.session, args.instrument)
        title = source.begin()
        secret = Secret()
        signal.signal(signal.SIGTERM, leave)
        with _listening(args.port) as listener:
            os.nice(POLITE)
            print(_welcome(listener, secret.token, title), flush=True)
            config = uvicorn.Config(
                application(Feed(source.read, source.stamp), secret, source.predict),
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

    def __init__(self, run: Path, session_id: str | None, instrument: str | None) -> None:
        self._run, self._instrument = run, instrument
        self._session_id = session_id
        self._has_begun = False
        self._files: list[Path] | None = None
        self._known: Sequence[Session] = ()
        self._due_s = 0.0

    def _job(self) -> Job | None:
        """As of now; None as long as no run has been there."""
        job = Job(self._run, self._session_id)
        self._has_begun = self._has_begun or not job.is_without_run or job.logs is not None
        return job if self._has_begun else None

    def begin(self) -> str:
        """Reads it once, so that a mistake is said here and not in the browser; returns what is served.
        Raises PerfError where it cannot be read.
        """
        if (job := self._job()) is None:
            return f"{self._run}, which has no run yet: the page shows one as soon as it has begun"
        whole = job.whole(self._instrument)
        report_of(whole)
        return str(whole.lead.path)

    def read(self) -> Report:
        """The whole report. Raises PerfError where it cannot be read."""
        if (job := self._job()) is None:
            raise PerfError(f"no run in {str(self._run)!r} yet; it is shown when its training begins")
        return report_of(job.whole(self._instrument))

    def predict(self, words: str) -> str:
        """What a change of it would bring. Raises PerfError where that has no answer."""
        if (job := self._job()) is None:
            raise PerfError(f"no run in {str(self._run)!r} yet")
        return "\n".join(answer(job.whole(self._instrument).lead, [words]))

    def stamp(self) -> object:
        """Changes when the run goes on or ends, and every `UNKNOWN_S` where that is not known."""
        if (job := self._job()) is None:
            return self._run, 0, False
        sessions = self._sessions(job)
        states = {one.is_live() for one in sessions}
        state = time.time() // UNKNOWN_S if None in states else frozenset(states)
        return [one.paths for one in sessions], sum(one.size_bytes for one in sessions), state

    def _sessions(self, job: Job) -> Sequence[Session]:
        """Those of the job, which are looked for again when there are other files, and now and then."""
        files = files_near(self._run) if self._run.is_dir() else []
        if files != self._files or time.monotonic() > self._due_s:
            self._known = job.whole(self._instrument).sessions
            self._files, self._due_s = files, time.monotonic() + LOOK_S
        return self._known


@contextlib.contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    if not 0 <= port <= MAX_PORT:
        raise PerfError(f"--port {port} is not a port; give 1 to {MAX_PORT}, or 0 for any free one")
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
            listener.listen(BACKLOG)
        except OSError as error:
            raise PerfError(
                f"cannot listen on port {port}: {error.strerror or error}; --port 0 for any free one"
            ) from None
        yield listener


def _welcome(listener: socket.socket, token: str, run: str) -> str:
    port = listener.getsockname()[1]
    here = f"{LOOPBACK}:{port}"
    return (
        f"serving {run}; open this in a browser on this machine (Ctrl-C ends it):\n"
        f"  http://{here}/?token={token}\n"
        "from another machine, first:\n"
        f"  ssh -N -L {port}:{here} {socket.gethostname()}"
    )
