"""The lines of the text log: the same in the log of the session, in the live log and on the console."""

from __future__ import annotations

from collections.abc import Iterable

from flagscale_perf.sinks.base import SinkContext
from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.figures import Column, Rows
from flagscale_perf.spine.records import EventRecord, Record, RunEnd
from flagscale_perf.spine.session import Labels
from flagscale_perf.spine.units import printable

_RULE = 80
_TIME = Column("Timestamp", 21)


class TextFormat:
    """Turns records into lines for one session."""

    def __init__(self, context: SinkContext) -> None:
        self._header = header = context.header
        self._options = context.options
        self._presentation = context.presentation
        self._labels = Labels(header)
        self._anchor = Anchor(header.start_wall_ns, header.start_mono_ns)
        self._rows = Rows(context.presentation.table, header)
        figures = context.presentation.table.figures
        shown = [(each.column, each) for each in figures if each.column and self._is_asked_for(each.column)]
        self._columns = [_TIME, *(column for column, _ in shown)]
        self._figures = [figure for _, figure in shown]
        self._flags = [figure for figure in figures if figure.flag]

    def heading(self) -> str:
        """What a log begins with, several lines."""
        started = self._time(self._header.start_wall_ns)
        titles = self._row(column.title for column in self._columns)
        title = f"{self._presentation.title} Session Started: {started}"
        notes = [f"# {printable(note)}" for note in self._presentation.notes(self._header)]
        lines = ["=" * _RULE, title, "=" * _RULE, titles, "-" * _RULE, *notes]
        return "".join(f"{line}\n" for line in lines)

    def separator(self) -> str:
        """One line between an earlier session in the same file and this one."""
        resumed = self._header.facts.get("resume_iteration")
        after = f", resumed after iteration {resumed}" if resumed else ""
        return f"# session {self._header.session_id}{after}\n"

    def line(self, record: Record) -> str:
        """The record's line, newline included; "" for a record that is not shown."""
        if self._rows.is_row(record):
            return self._figures_of(record) + "\n"
        if isinstance(record, EventRecord):
            at = self._time(self._anchor.wall_of(record.at_ns))
            return f"# {at} {record.name}: {printable(record.text)}\n"
        if isinstance(record, RunEnd):
            lost = f", {record.dropped} records lost" if record.dropped else ""
            end = f"end: {printable(record.reason)} after iteration {record.last_iteration}{lost}"
            return f"# {self._time(record.end_wall_ns)} {end}\n"
        return ""

    def _figures_of(self, record: Record) -> str:
        cells = [figure.text(self._rows.value(figure, record)) for figure in self._figures]
        flags = [figure.flag for figure in self._flags if self._rows.value(figure, record)]
        return self._row([self._time(getattr(record, self._rows.table.time)), *cells, *flags])

    def _is_asked_for(self, column: Column) -> bool:
        return column.option is None or bool(getattr(self._options, column.option))

    def _row(self, cells: Iterable[str]) -> str:
        widths = [column.width for column in self._columns] + [0]
        # The last character of a column is always a space, also where the cell is wider than it.
        padded = (cell.ljust(width - 1) + " " for cell, width in zip(cells, widths, strict=False))
        return "".join(padded).rstrip()

    def _time(self, wall_ns: int) -> str:
        return self._labels.at(wall_ns).isoformat(sep=" ")
