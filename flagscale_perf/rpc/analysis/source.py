"""Reads calls from a session's run file, or from a performance log alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from flagscale_perf.analysis.session import Session
from flagscale_perf.rpc.analysis.columns import Columns, named
from flagscale_perf.rpc.analysis.log_file import LogFile
from flagscale_perf.rpc.analysis.served import Served
from flagscale_perf.rpc.facts import RpcFacts
from flagscale_perf.rpc.figures import TABLE
from flagscale_perf.rpc.log import METHODS
from flagscale_perf.rpc.records import CallRecord, ServedRecord
from flagscale_perf.spine.figures import Rows, Value
from flagscale_perf.spine.session import labels_of
from flagscale_perf.store.decoder import Chunk
from flagscale_perf.store.kept import Kept
from flagscale_perf.store.run_file import Reading


class RunSource:
    """The calls of a session. Its properties are final once the calls have been read.

    Attributes:
        session: theirs.
        served: what the server has told of its side.
        starts_known: `start_ns` of the calls is known.
    """

    starts_known = True

    def __init__(self, session: Session) -> None:
        """Raises PerfError for a header without a valid session id."""
        self.session = session
        labels_of(session.header)
        self.served = Served()

    @property
    def events(self) -> list[str]:
        """The first lines about trouble."""
        return self.session.course.events

    def read(self, begin: Callable[[], None], into: Sequence[Any] = ()) -> Iterator[Columns]:
        """The calls of the session, a batch at a time; `begin` is called before them. `into`: see
        `Session.chunks`. Raises PerfError.
        """
        begin()
        self.served = Served()
        state = [*into, self.served] if into else ()
        for part in self.session.chunks({CallRecord}, {ServedRecord}, state):
            if isinstance(part, Chunk):
                yield named(part.columns[CallRecord])
            elif isinstance(part, ServedRecord):
                self.served.add(part)

    def __iter__(self) -> Iterator[list[Value]]:
        """A header, then a row for each call: exact values, in the units of the figures. The file is read
        again, as millions of calls are not kept in memory.
        """
        figures = Rows(TABLE, self.session.header)
        yield [*TABLE.csv_keys()]
        for record in self.session.records(CallRecord):
            yield [*figures.csv(record).values()]

    def facts(self) -> RpcFacts:
        """The session's facts, from the header."""
        return RpcFacts.of(self.session.header.facts)

    def title(self) -> str:
        """Names the session."""
        return f"Calls of session {self.session.header.session_id}"

    def begun(self) -> str | None:
        """When it began and in which process."""
        return f"{self.session.begun} by process {self.session.header.pid}"

    def state(self) -> str:
        """How it ended; `running` while it is being written."""
        return self.session.state

    def selected(self) -> list[str]:
        """The methods that were recorded; empty if all were."""
        chosen = self.session.header.config.get(METHODS)
        return [str(each) for each in chosen] if isinstance(chosen, list) else []

    def reading(self) -> Reading:
        """Includes the lines that are no records."""
        return self.session.reading


class LogSource:
    """The calls of a performance log. Its properties are final once the calls have been read.

    Attributes:
        session: its file.
        served: empty: a log has the caller's side alone.
        events: empty: a log has none.
        starts_known: `start_ns` of the calls is not known.
    """

    starts_known = False

    def __init__(self, session: Session) -> None:
        """Raises PerfError if the file is not such a log."""
        self.session = session
        self.served = Served()
        self.events: list[str] = []
        self._log = LogFile(session.path)

    def read(self, begin: Callable[[], None], into: Sequence[Any] = ()) -> Iterator[Columns]:
        """The calls, a batch at a time; `begin` is called at the start of each session in the log, of which
        the last one counts. No calls where the same log has gone into `into` before. Raises PerfError.
        """
        kept = Kept.of([self.session.path], [*into, self._log]) if into else None
        if kept is not None and kept.restore():
            return
        yield from (part.columns for part in self._log.parts(begin))
        if kept is not None:
            kept.keep()

    def __iter__(self) -> Iterator[list[Value]]:
        """A header with the names of our figures, then the values as written, of every session."""
        keys = {figure.as_column().title: figure.key for figure in TABLE.figures}
        has_head = False
        for part in self._log.parts(lambda: None):
            if not has_head:
                has_head = True
                yield [keys.get(title, title) for title in self._log.columns]
            for row in zip(*part.cells, strict=True):
                yield ["" if cell == "-" else cell for cell in row]

    def facts(self) -> RpcFacts:
        """The session's facts, from the log's heading."""
        return self._log.facts

    def title(self) -> str:
        """Names the file."""
        session = f"session {self._log.session} in " if self._log.session else ""
        return f"Calls of {session}{self.session.path}"

    def begun(self) -> str | None:
        """None: a log has the time beside each call only."""
        return None

    def state(self) -> str:
        """How it ended, by the foot of the log; "" if unknown."""
        return self._log.ended

    def selected(self) -> list[str]:
        """The methods that were recorded; empty if all were, or where the log does not say."""
        return self._log.selected

    def reading(self) -> Reading:
        """Includes the lines that are not rows."""
        log = self._log
        return Reading(str(self.session.path), {"rpc_call": log.calls}, log.skipped, log.first_skipped)


Source: TypeAlias = RunSource | LogSource


def open_source(session: Session) -> Source:
    """The calls of a session or in a log. Raises PerfError if it cannot be read."""
    return LogSource(session) if session.logs else RunSource(session)
