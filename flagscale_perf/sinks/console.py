"""The text log's lines on the host's console."""

from __future__ import annotations

from typing import ClassVar

from flagscale_perf.sinks.base import Sink, SinkContext
from flagscale_perf.sinks.text_format import TextFormat
from flagscale_perf.spine.records import Record


class ConsoleSink(Sink):
    """Hands each line to the host's own printing; asked for by `perf_console_output`."""

    name: ClassVar[str] = "console"
    cost: ClassVar[str] = "no lines on the console; the text log goes on"
    option: ClassVar[str | None] = "perf_console_output"

    def __init__(self, context: SinkContext) -> None:
        self._format = TextFormat(context)
        self._emit = context.emit
        self._waiting = [] if context.resumed else self._format.heading().splitlines()

    def write(self, record: Record) -> None:
        """Keeps the record's line, if it has one."""
        self._waiting += self._format.line(record).splitlines()

    def flush(self) -> None:
        """Hands the lines over, each once."""
        waiting, self._waiting = self._waiting, []
        for line in waiting:
            self._emit(line)
