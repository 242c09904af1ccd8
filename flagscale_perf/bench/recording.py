"""The run file of experiments, written by the process that directs them: a record is in the file when `put`
returns.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from flagscale_perf.bench.records import MAX_SAMPLES, BenchBegun, BenchEnded, BenchFigure, BenchPoint
from flagscale_perf.sinks.run_file import RecordsSink
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import MAX_TEXT
from flagscale_perf.spine.records import ClockRecord, Record, RunEnd
from flagscale_perf.spine.session import file_names
from flagscale_perf.writer.session import claim, header_of
from flagscale_perf.writer.task import WriterTask

INSTRUMENT_NAME = "bench"
COMPLETED, INTERRUPTED, FAILED = "completed", "interrupted", "partial"


@dataclass
class Clock:
    """When something was measured.

    Attributes:
        start_ns: monotonic mark.
        dur_ns: how long it took; 0 as long as it lasts.
    """

    start_ns: int
    dur_ns: int = 0


class Part:
    """One experiment under way. Made by `Book.part`."""

    def __init__(self, book: Book, name: str) -> None:
        """An experiment of this book."""
        self._book, self.name = book, name

    @contextlib.contextmanager
    def timing(self) -> Iterator[Clock]:
        """Times its block, for the point measured in it."""
        clock = Clock(monotonic_ns())
        try:
            yield clock
        finally:
            clock.dur_ns = monotonic_ns() - clock.start_ns

    def point(
        self, figure: str, unit: str, case: Mapping[str, Any], samples: Sequence[float], clock: Clock
    ) -> None:
        """Writes a measured point, with at most `MAX_SAMPLES` repetitions."""
        kept = [float(sample) for sample in samples[:MAX_SAMPLES]]
        self._book.put(BenchPoint(self.name, figure, unit, dict(case), clock.start_ns, clock.dur_ns, kept))

    def value(self, figure: str, unit: str, case: Mapping[str, Any], value: float | None, why: str) -> None:
        """Writes a figure from elsewhere, or why there is none."""
        self._book.put(BenchFigure(self.name, figure, unit, dict(case), value, why[:MAX_TEXT]))


class Book:
    """A run file of experiments; a context manager that ends the file."""

    def __init__(self, file: RecordsSink, path: Path, task: WriterTask) -> None:
        """Takes a file that has been begun; `begin` makes one."""
        self._file, self._task = file, task
        self._is_refused = self._is_over = False
        self.path = path
        self.is_partial = False

    @classmethod
    def begin(cls, directory: Path, facts: Mapping[str, Any]) -> Book:
        """Claims a session and writes its header. Raises PerfError for a directory that cannot be written."""
        task = WriterTask.of({}, dict(facts), str(directory), None)
        try:
            session_id = claim(task)
            file = RecordsSink(task.directory, header_of(session_id, task, INSTRUMENT_NAME))
            file.flush()
        except OSError as error:
            raise PerfError(
                f"-o {directory}: no run file can be written there ({error.strerror or error}); name another"
                " directory"
            ) from None
        return cls(file, task.directory / file_names(session_id)["records"], task)

    def put(self, record: Record) -> None:
        """Writes a record. If the disk refuses it, this is reported once and retried with the next record."""
        self._file.write(record)
        try:
            self._file.flush()
            self._is_refused = False
        except OSError as error:
            if not self._is_refused:
                self._is_refused = True
                print(
                    f"{self.path}: cannot be written ({error.strerror or error}); points wait in memory",
                    file=sys.stderr,
                )

    @contextlib.contextmanager
    def part(self, name: str, planned: int | None, settings: Mapping[str, Any]) -> Iterator[Part]:
        """An experiment: partial if an exception ends its block, which keeps what was measured before."""
        self.put(BenchBegun(name, monotonic_ns(), planned, dict(settings)))
        reason = ""
        try:
            yield Part(self, name)
        except KeyboardInterrupt:
            reason = INTERRUPTED
            raise
        except BaseException as error:
            reason = str(error) or type(error).__name__
            raise
        finally:
            self.is_partial = self.is_partial or bool(reason)
            self.put(BenchEnded(name, monotonic_ns(), not reason, (reason or COMPLETED)[:MAX_TEXT]))

    def end(self, reason: str) -> None:
        """Ends the file; further calls do nothing."""
        if self._is_over:
            return
        self._is_over = True
        now_ns = monotonic_ns()
        wall_ns = self._task.anchor.wall_of(now_ns)
        self.put(ClockRecord(wall_ns, now_ns))
        self.put(RunEnd(reason, wall_ns, 0, 0))
        self._file.close()

    def __enter__(self) -> Book:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.end(FAILED if self.is_partial else COMPLETED)
        else:
            self.end(INTERRUPTED if issubclass(kind, KeyboardInterrupt) else f"exception {kind.__name__}")
