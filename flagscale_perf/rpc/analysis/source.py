"""Reads calls from a session's run file, or from a performance log alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from flagscale_perf.analysis.decoder import Block
from flagscale_perf.analysis.run_file import Reading, RunFile
from flagscale_perf.analysis.session import Session
from flagscale_perf.rpc.analysis.columns import Columns, gathered
from flagscale_perf.rpc.analysis.contradictions import Contradictions
from flagscale_perf.rpc.analysis.log_file import LogFile
from flagscale_perf.rpc.analysis.served import Served
from flagscale_perf.rpc.facts import RpcFacts
from flagscale_perf.rpc.figures import TABLE
from flagscale_perf.rpc.log import METHODS, TITLE
from flagscale_perf.rpc.records import CallRecord, ServedRecord
from flagscale_perf.spine.figures import Rows, Value
from flagscale_perf.spine.session import labels_of


class Source(Protocol):
    """The calls of one session. Its properties are final once the calls have been read.

    Attributes:
        path: of the file.
        served: what the server has told of its side.
        contradictions: between its records and the caller's.
        events: the first lines about trouble.
        starts_known: `start_ns` of the calls is known.
    """

    path: Path
    served: Served
    contradictions: Contradictions
    starts_known: bool

    @property
    def events(self) -> list[str]:
        """See the class."""

    def read(self, begin: Callable[[], None]) -> Iterator[Columns]:
        """The calls, a batch at a time; `begin` is called when they start over. Raises PerfError."""

    def rows(self) -> Iterator[list[Value]]:
        """A header, then a row for each call, for `--format csv`; for a log, the values as written there."""

    def facts(self) -> RpcFacts:
        """What is known about the session."""

    def title(self) -> str:
        """The session's title."""

    def begun(self) -> str | None:
        """When it began and in which process; None if unknown."""

    def state(self) -> str:
        """How it ended; `running` while it is being written, "" if unknown."""

    def selected(self) -> list[str]:
        """The methods that were recorded; empty if all were."""

    def reading(self) -> Reading:
        """What was read, and what could not be."""


class RunSource:
    """A run file."""

    starts_known = True

    def __init__(self, path: Path) -> None:
        """Raises PerfError if the file is not a run file."""
        self.path, self._session = path, Session(path)
        labels_of(self._session.header)
        self.served, self.contradictions = Served(), Contradictions()

    @property
    def events(self) -> list[str]:
        """The first lines about trouble."""
        return self._session.course.events

    def read(self, begin: Callable[[], None]) -> Iterator[Columns]:
        """The calls of the session."""
        begin()
        self.served, self.contradictions = Served(), Contradictions()
        facts = self.facts()
        is_served = bool(facts.client) and facts.server_pid is not None
        for columns in gathered(self._calls()):
            if is_served:
                self.contradictions.add_calls(columns)
            yield columns

    def _calls(self) -> Iterator[Sequence[Sequence[Any]]]:
        """The calls in columns."""
        for part in self._session.blocks((CallRecord,)):
            if isinstance(part, Block):
                yield part.columns
            elif isinstance(part, ServedRecord):
                self.served.add(part)
                self.contradictions.add_served(part)

    def rows(self) -> Iterator[list[Value]]:
        """Exact values, in the units of the figures."""
        figures = Rows(TABLE, self._session.header)
        yield [*TABLE.csv_keys()]
        for record in RunFile(self.path):
            if isinstance(record, CallRecord):
                yield [*figures.csv(record).values()]

    def facts(self) -> RpcFacts:
        """From the header."""
        return RpcFacts.of(self._session.header.facts)

    def title(self) -> str:
        """Names the session."""
        return f"Calls of session {self._session.header.session_id}"

    def begun(self) -> str | None:
        """From the header."""
        return f"{self._session.begun} by process {self._session.header.pid}"

    def state(self) -> str:
        """How it ended."""
        return self._session.state

    def selected(self) -> list[str]:
        """From the recorded options."""
        chosen = self._session.header.config.get(METHODS)
        return [str(each) for each in chosen] if isinstance(chosen, list) else []

    def reading(self) -> Reading:
        """Includes the lines that are no records."""
        return self._session.reading


class LogSource:
    """A performance log."""

    starts_known = False

    def __init__(self, path: Path) -> None:
        """Raises PerfError if the file is not such a log."""
        self.path = path
        self.served = Served()
        self.contradictions = Contradictions()
        self.events: list[str] = []
        self._log = LogFile(path)
        self._calls = 0

    def read(self, begin: Callable[[], None]) -> Iterator[Columns]:
        """The calls of the last session in it."""

        def begin_anew() -> None:
            """Forgets an earlier session."""
            self._calls = 0
            begin()

        for part in self._log.parts(begin_anew):
            self._calls += len(part.cells[0])
            yield part.columns

    def rows(self) -> Iterator[list[Value]]:
        """The values as written, of every session; the header has the names of our figures."""
        keys = {figure.as_column().title: figure.key for figure in TABLE.figures}
        has_head = False
        for part in self._log.parts(lambda: None):
            if not has_head:
                has_head = True
                yield [keys.get(title, title) for title in self._log.columns]
            for row in zip(*part.cells, strict=True):
                yield ["" if cell == "-" else cell for cell in row]

    def facts(self) -> RpcFacts:
        """From the heading."""
        return self._log.facts

    def title(self) -> str:
        """Names the file."""
        session = f"session {self._log.session} in " if self._log.session else ""
        return f"Calls of {session}{self.path}"

    def begun(self) -> str | None:
        """None: a log has the time beside each call only."""
        return None

    def state(self) -> str:
        """From the foot of the log."""
        return self._log.ended

    def selected(self) -> list[str]:
        """From the heading."""
        return self._log.selected

    def reading(self) -> Reading:
        """Includes the lines that are not rows."""
        log = self._log
        return Reading(str(self.path), {"rpc_call": self._calls}, log.skipped, log.first_skipped)


def is_log(path: Path) -> bool:
    """Whether the file begins as a performance log does."""
    try:
        with path.open("rb") as file:
            return file.read(len(TITLE)) == TITLE.encode()
    except OSError:
        return False


def open_source(path: Path) -> Source:
    """The calls in this file. Raises PerfError if it is neither a run file nor a log."""
    return LogSource(path) if is_log(path) else RunSource(path)
