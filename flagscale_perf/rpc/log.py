"""`zmq_performance.log`: one line per call, in the columns that other programs' logs have, followed by our
own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from flagscale_perf.rpc.facts import RpcFacts
from flagscale_perf.rpc.figures import MIB, TABLE
from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.rpc.totals import StageSum, Totals
from flagscale_perf.sinks.base import FileSink, SinkContext
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.figures import Figure
from flagscale_perf.spine.files import AppendFile, open_locked, open_regular
from flagscale_perf.spine.records import Record, RunEnd, RunHeader
from flagscale_perf.spine.session import Starts
from flagscale_perf.spine.units import UNKNOWN, printable

TITLE = "ZeroMQ Performance Log"
FORMAT = 2  # 1 is that of others: no line says so there
RULER = "=" * 116
RECEIVE_HAS_WAIT = "# Recv(ms) has the wait for the reply, too"
ONLY = "# only "
ABOUT = ("payload", "control", "device", "dtype")  # facts that the log names, too
LOG_FILE, APPEND, METHODS = "rpc_log_file", "rpc_append", "rpc_methods"  # keys of the header's config
MAX_NAMES = 99  # zmq_performance.log, zmq_performance_2.log ... where other clients write at the same time


class LogFormat:
    """Formats the lines of one session."""

    def __init__(self, header: RunHeader) -> None:
        self._header = header
        self._starts = Starts(header)
        columns = [(figure, figure.as_column().width - 1) for figure in TABLE.figures]
        self._head = "".join(f"{figure.as_column().title:<{width}} " for figure, width in columns)
        self._cells = [
            (figure.value, figure.unit.divisor, _pattern(figure, width), f"{UNKNOWN:<{width}} ")
            for figure, width in columns
        ]

    @property
    def mark(self) -> str:
        """The line that identifies a log as this session's."""
        header = self._header
        return f"# format {FORMAT}, session {header.session_id} of process {header.pid}, KB = 1024 bytes"

    def heading(self) -> str:
        """The lines at the beginning of a session."""
        facts = RpcFacts.of(self._header.facts)
        lines = [f"{TITLE} - Transport: {printable(facts.transport)}", RULER, self._head, RULER, self.mark]
        about = [f"{name} {value}" for name in ABOUT if (value := getattr(facts, name)) is not None]
        lines.append(f"# {printable(', '.join([f'{facts.role} at {facts.endpoint}', *about]))}")
        if facts.receive_has_wait:
            lines.append(RECEIVE_HAS_WAIT)
        if methods := self._header.config.get(METHODS):
            lines.append(f"{ONLY}{printable(', '.join(methods))}")
        return "".join(f"{line}\n" for line in lines)

    def line(self, call: CallRecord) -> str:
        """The call's line, including its newline."""
        cells = []
        for value_of, divisor, pattern, unknown in self._cells:
            value = value_of(call, self._starts)
            if value is None:
                cells.append(unknown)
            else:
                cells.append(pattern % (value if divisor == 1 else value / divisor))  # type: ignore[operator]
        cells.append("\n")
        return "".join(cells)

    def footer(self, totals: Totals, end: RunEnd) -> str:
        """The lines at the end of a session."""
        speed = f"{totals.bytes_per_s / MIB:.2f} MB/s" if totals.bytes_per_s is not None else UNKNOWN
        lines = [
            RULER,
            f"Calls: {totals.calls}, failed: {totals.failed}, records lost: {end.dropped}",
            f"Time: {totals.total_ns / NS_PER_MS:.3f} ms",
            f"Sent: {totals.sent_bytes / MIB:.2f} MB, received: {totals.received_bytes / MIB:.2f} MB,"
            f" throughput: {speed}",
            "Stages: " + ", ".join(_share(one, totals.calls) for one in totals.stages()),
            f"Ended: {printable(end.reason)}",
            RULER,
        ]
        return "".join(f"{line}\n" for line in lines)


def _share(one: StageSum, calls: int) -> str:
    if one.share is None:
        return f"{one.stage.name} {UNKNOWN}"
    part = "" if one.told == calls else f" (told in {one.told} of {calls} calls)"
    return f"{one.stage.name} {100 * one.share:.1f} %{part}"


def _pattern(figure: Figure[Any, Any], width: int) -> str:
    if figure.unit.name:
        return f"%-{width}.{figure.unit.decimals}f "
    return f"%-{width}s "


class _There(NamedTuple):
    """What an earlier writer of the session left in the log."""

    rows: int
    has_footer: bool
    size: int = 0  # up to the last complete line


class PerformanceLogSink(FileSink):
    """The log, enabled by naming a file for it. A session empties the log with its first call, or continues
    it with `append`. A log that another client is writing is left alone: the next free name is taken and
    reported.
    """

    name: ClassVar[str] = "performance log"
    cost: ClassVar[str] = "no new lines in it; `flagscale-perf report` reads the run file"
    rebuilds: ClassVar[bool] = True

    def __init__(self, context: SinkContext) -> None:
        config = context.header.config
        self._format = LogFormat(context.header)
        self._totals = Totals()
        self._wanted = Path(config[LOG_FILE])
        self._append = bool(config.get(APPEND))
        self._emit = context.emit
        self._there: _There | None = None if context.resumed else _There(0, False)
        self._has_begun = context.resumed
        self._file = AppendFile(self._wanted, self._open, self._preamble)

    @classmethod
    def open(cls, context: SinkContext) -> PerformanceLogSink | None:
        """Only if a file was named for it."""
        return cls(context) if context.header.config.get(LOG_FILE) else None

    def write(self, record: Record) -> None:
        """Keeps the call's line, unless an earlier writer of the session wrote it to the log."""
        if isinstance(record, CallRecord):
            there = self._there or self._look()
            self._totals.add(record)
            if self._totals.calls > there.rows:
                self._file.write(self._format.line(record).encode())
        elif isinstance(record, RunEnd):
            there = self._there or self._look()
            if not there.has_footer and not self._would_only_empty():
                self._file.write(self._format.footer(self._totals, record).encode())

    def flush(self) -> None:
        """Writes the lines to the file. Raises OSError."""
        if not self._would_only_empty():
            self._file.flush()

    def _would_only_empty(self) -> bool:
        """Before its first call this session may yet be refused: an earlier one's log is left as it is."""
        return not (self._has_begun or self._totals.calls) and self._wanted.exists()

    def _look(self) -> _There:
        """What the log has of this session; nothing if no log has its mark."""
        self._there = _There(0, False)
        for path in self._names():
            if (there := _left_in(path, self._format.mark)) is not None:
                self._file.path, self._there = path, there
                return there
        self._has_begun = False
        return self._there

    def _names(self) -> Iterator[Path]:
        yield self._wanted
        for number in range(2, MAX_NAMES + 1):
            yield self._wanted.with_stem(f"{self._wanted.stem}_{number}")

    def _open(self, path: Path) -> int:
        if self._has_begun:
            fd = open_locked(path)
            if (there := _left_in(path, self._format.mark)) is not None:
                os.ftruncate(fd, there.size)
            return fd
        for free in self._names():
            try:
                fd = open_locked(free)
            except BlockingIOError:
                continue
            self._begin(fd, free)
            return fd
        raise BlockingIOError(f"{path} and {MAX_NAMES - 1} more are written by other clients")

    def _begin(self, fd: int, path: Path) -> None:
        """Begins the log: an old one is emptied unless it is to be kept. Raises OSError if it is another kind
        of file.
        """
        try:
            first = _first_line(path)[: len(TITLE)]
            if not TITLE.encode().startswith(first):
                raise OSError(f"{path} is not a log of calls and is left as it is; give another log_file")
            if not self._append:
                os.ftruncate(fd, 0)
        except OSError:
            os.close(fd)
            raise
        self._has_begun = True
        self._file.path = path
        if path != self._wanted:
            self._emit(f"flagscale_perf: {self._wanted} is written by another client; this one has {path}")

    def _preamble(self, fresh: bool) -> bytes:
        if not fresh and _left_in(self._file.path, self._format.mark) is not None:
            return b""
        return (("" if fresh else "\n") + self._format.heading()).encode()


def _first_line(path: Path) -> bytes:
    with os.fdopen(open_regular(path), "rb") as file:
        return file.readline(4096)


def _left_in(path: Path, mark: str) -> _There | None:
    """The session's complete lines in the log; None if it is not there."""
    there: _There | None = None
    size = 0
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            for line in filter(lambda line: line.endswith(b"\n"), file):
                size += len(line)
                if line.rstrip() == mark.encode():
                    there = _There(0, False, size)
                elif there is not None:
                    is_end = there.has_footer or line[:6] == b"Ended:"
                    there = _There(there.rows + line[:1].isdigit(), is_end, size)
    except FileNotFoundError:
        return None
    return there
