"""`tq_trace_<pid>.log`: each process's lines in a file of its own, for `tail -f` and grep."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple

from flagscale_perf.sinks.base import Sink, SinkContext
from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.files import AppendFile, open_locked, open_regular, rotate
from flagscale_perf.spine.peers.records import NameRecord, ProcessRecord
from flagscale_perf.spine.records import Record
from flagscale_perf.spine.units import printable
from flagscale_perf.trace.lines import Lines
from flagscale_perf.trace.options import hidden_by
from flagscale_perf.trace.records import CallRecord, OperationRecord, StartRecord, UnsizedRecord, WaitRecord
from flagscale_perf.trace.task import DETAIL, LEVEL, STDOUT, TRACE
from flagscale_perf.trace.unended import End, Key, Unended, key_of

_KINDS = ((CallRecord, TRACE), (OperationRecord, DETAIL), (WaitRecord, DETAIL))
MAX_BYTES = 64 << 20
_LAST_LINE = re.compile(rb" \| stage=(?:FUNCTION_END|TQ_CLIENT_(?:GET|PUT|UPDATE)_END) \| ")
_NUMBER = re.compile(rb" \| number=(\d+)")


class _Log:
    """The log of one process.

    Attributes:
        pid: of the process.
        lines: makes its lines.
        there: numbers of the records whose lines an earlier writer has brought there.
        unended: what has begun and not ended.
        early: lines that an earlier writer has brought there of what had not ended.
        shown: how many lines are there of what has not ended.
        unsized: by number, of operations whose bytes are not all known and whose records come next.
    """

    def __init__(self, path: Path, pid: int, anchor: Anchor, head: bytes, resumed: bool) -> None:
        """Raises OSError if an existing log to be continued cannot be read."""
        self.pid, self.lines = pid, Lines(anchor, pid)
        self.there: frozenset[int] = frozenset()
        self.unended = Unended()
        self.early: frozenset[bytes] = frozenset()
        self.shown: dict[Key, int] = {}
        self.unsized: dict[int, UnsizedRecord] = {}
        begun = False
        if resumed:
            older, last = _left_in(part_of(path, 1), head), _left_in(path, head)
            self.there = frozenset().union(*(left.numbers for left in (older, last) if left))
            self.early = frozenset().union(*(left.early for left in (older, last) if left))
            if last is not None:
                begun = True
                os.truncate(path, last.size)
        self.file = AppendFile(path, self._open, lambda fresh: head if fresh or not begun else b"")

    def _open(self, path: Path) -> int:
        """Opens and locks the file; another one beside it if a process of another machine has the same pid.
        Raises OSError.
        """
        try:
            return open_locked(path)
        except BlockingIOError:
            self.file.path = path.with_stem(f"{path.stem}_{os.uname().nodename}")
            return open_locked(self.file.path)


class LinesSink(Sink):
    """One live file per process; older parts end in `.1.log` (the newest of them), `.2.log` ..."""

    name: ClassVar[str] = "trace logs"
    cost: ClassVar[str] = "no new lines in them; `flagscale-perf report` reads the run file"
    rebuilds: ClassVar[bool] = True

    def __init__(self, context: SinkContext, max_bytes: int = MAX_BYTES) -> None:
        header, config = context.header, context.header.config
        self._context = context
        self._max_bytes = max_bytes
        self._anchor = Anchor(header.start_wall_ns, header.start_mono_ns)
        self._shown = tuple(kind for kind, key in _KINDS if config.get(key))
        self._to_stdout = bool(config.get(STDOUT))
        self._logs: dict[int, _Log] = {}
        self._over: list[int] = []

    @classmethod
    def open(cls, context: SinkContext) -> LinesSink | None:
        """Opens nothing if verl's logging level hides the lines, which is reported."""
        reason = hidden_by(printable(str(context.header.config.get(LEVEL) or "")))
        if reason:
            context.complain(
                f"flagscale_perf: {reason} hides [TQ-TRACE] and [TQ-DETAIL]; with INFO they are shown;"
                " the run file has all records"
            )
            return None
        return cls(context)

    def write(self, record: Record) -> None:
        """Keeps the record's lines, unless an earlier writer of the session wrote them to the log."""
        if isinstance(record, ProcessRecord):
            self._process(record)
        elif isinstance(record, NameRecord):
            self._logs[record.process].lines.names[record.number] = record.text
        elif isinstance(record, StartRecord):
            self._begun(self._logs[record.process], record)
        elif isinstance(record, UnsizedRecord):
            self._logs[record.process].unsized[record.number] = record
        elif isinstance(record, self._shown):
            self._ended(self._logs[record.process], record)

    def _ended(self, log: _Log, record: End) -> None:
        log.unended.add(record)
        shown = log.shown.pop(key_of(record), 0)
        number = getattr(record, "number", 0)  # a wait has none
        unsized = log.unsized.pop(number, None)
        if number not in log.there:
            lines = log.lines.of(record, unsized)[shown:]
            self._put(log, [line for line in lines if number or line.encode() not in log.early])

    def _begun(self, log: _Log, record: StartRecord) -> None:
        log.unended.add(record)
        if log.early:
            key = key_of(record)
            lines = log.lines.begun(log.unended.begun[key])
            log.shown[key] = sum(line.encode() in log.early for line in lines)

    def _put(self, log: _Log, lines: list[str]) -> None:
        log.file.write("".join(f"{line}\n" for line in lines).encode())
        if self._to_stdout:
            for line in lines:
                self._context.emit(line, log.pid)

    def _show_begun(self, log: _Log) -> None:
        """Puts the lines of what began since the last time and has not ended: most end before they are due,
        and their lines stay together.
        """
        for key, begun in log.unended.begun.items():
            lines = log.lines.begun(begun)
            self._put(log, lines[log.shown.get(key, 0) :])
            log.shown[key] = len(lines)

    def flush(self) -> None:
        """Writes the lines to their files and begins a new part before one gets too large. Raises OSError."""
        for log in self._logs.values():
            self._show_begun(log)
            if log.file.waiting_bytes:
                if log.file.size() and log.file.size() + log.file.waiting_bytes > self._max_bytes:
                    rotate(log.file.path, partial(part_of, log.file.path))
                log.file.flush()
        while self._over:
            self._logs.pop(self._over.pop()).file.close()

    def close(self) -> None:
        """Closes the files."""
        for log in self._logs.values():
            log.file.close()

    def _process(self, record: ProcessRecord) -> None:
        if record.end is not None:
            self._over.append(record.number)
            return
        header = self._context.header
        title = printable(record.title)
        head = (
            f"# process {record.number} of session {header.session_id} on {header.host}: {title}\n".encode()
        )
        path = self._context.directory / log_name(record.pid)
        self._logs[record.number] = _Log(path, record.pid, self._anchor, head, self._context.resumed)


def log_name(pid: int) -> str:
    """For example `tq_trace_123.log`."""
    return f"tq_trace_{pid}.log"


def part_of(path: Path, number: int) -> Path:
    """Path of an older part of a log; part 1 is the newest."""
    return path.with_name(f"{path.stem}.{number}{path.suffix}")


class _Left(NamedTuple):
    """The log of a session as an earlier writer left it.

    Attributes:
        numbers: numbers of the records whose lines are whole.
        early: lines of what had not ended.
        size: the log's size up to the last of either.
    """

    numbers: frozenset[int]
    early: frozenset[bytes]
    size: int


def _left_in(path: Path, head: bytes) -> _Left | None:
    """None if the session is not in this log. Raises OSError."""
    numbers: set[int] = set()
    early: set[bytes] = set()
    size: int | None = None
    at = 0
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            for line in file:
                at += len(line)
                if line == head:
                    size = at
                elif size is not None and line.endswith(b"\n") and _LAST_LINE.search(line):
                    numbers.update(map(int, _NUMBER.findall(line)))
                    size = at
                elif size is not None and line.endswith(b"\n") and not _NUMBER.search(line):
                    early.add(line.rstrip(b"\n"))
                    size = at
    except FileNotFoundError:
        return None
    return None if size is None else _Left(frozenset(numbers), frozenset(early), size)
