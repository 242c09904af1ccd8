"""The lines of the text log: the same in the log of the session, in the live log and on the console."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.sinks.base import SinkContext
from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.figures import Column, Figure, Rows, Table
from flagscale_perf.spine.language import live
from flagscale_perf.spine.records import EventRecord, Record, RunEnd
from flagscale_perf.spine.session import Labels
from flagscale_perf.spine.units import printable

_RULE = 80
_TIME, _TIME_KEY = Column("Timestamp", 21), "timestamp"


class TextFormat:
    """Turns records into lines for one session."""

    def __init__(self, context: SinkContext) -> None:
        self._header = header = context.header
        self._presentation = context.presentation
        self._labels = Labels(header)
        self._anchor = Anchor(header.start_wall_ns, header.start_mono_ns)
        table = context.presentation.table
        self._rows = Rows(table, header)
        self._figures = _shown(table, context.options)
        self._columns = [_TIME, *(figure.as_column() for figure in self._figures)]
        self._flags = [figure for figure in table.figures if figure.flag]

    def heading(self) -> str:
        """The first lines of a log."""
        started = self._time(self._header.start_wall_ns)
        titles = self._row(column.title for column in self._columns)
        title = f"{self._presentation.title} Session Started: {started}"
        notes = [f"# {printable(live(note))}" for note in self._presentation.notes(self._header)]
        lines = ["=" * _RULE, title, "=" * _RULE, titles, "-" * _RULE, *notes]
        return "".join(f"{line}\n" for line in lines)

    def separator(self) -> str:
        """One line between an earlier session in the same file and this one."""
        resumed = self._header.facts.get("resume_iteration")
        after = f", resumed after iteration {resumed}" if resumed else ""
        return f"# {live(f'session {self._header.session_id}{after}')}\n"

    def line(self, record: Record) -> str:
        """The record's line, newline included; "" for a record that is not shown."""
        if self._rows.is_row(record):
            return self._figures_of(record) + "\n"
        if isinstance(record, EventRecord):
            at = self._time(self._anchor.wall_of(record.at_ns))
            return f"# {at} {record.name}: {printable(live(record.text))}\n"
        if isinstance(record, RunEnd):
            lost = f", {record.dropped} records lost" if record.dropped else ""
            end = live(f"{record.reason} after iteration {record.last_iteration}{lost}")
            return f"# {self._time(record.end_wall_ns)} end: {printable(end)}\n"
        return ""

    def _figures_of(self, record: Record) -> str:
        cells = [figure.text(self._rows.value(figure, record)) for figure in self._figures]
        flags = [figure.flag for figure in self._flags if self._rows.value(figure, record)]
        return self._row([self._time(getattr(record, self._rows.table.time)), *cells, *flags])

    def _row(self, cells: Iterable[str]) -> str:
        widths = [column.width for column in self._columns] + [0]
        # The last character of a column is always a space, also where the cell is wider than it.
        padded = (cell.ljust(width - 1) + " " for cell, width in zip(cells, widths, strict=False))
        return "".join(padded).rstrip()

    def _time(self, wall_ns: int) -> str:
        return self._labels.at(wall_ns).isoformat(sep=" ")


def _shown(table: Table[Any, Any], options: PerfConfig) -> list[Figure[Any, Any]]:
    """The step first, then what `perf_columns` names in its order, or else the usual ones."""
    usual = [figure for figure in table.figures if figure.column and figure.column.is_usual(options)]
    if not options.columns():
        return usual
    first = [figure for figure in usual if figure.key == table.step]
    left_out = {_TIME_KEY, *(figure.key for figure in first)}  # there in any case
    try:
        chosen = table.named([key for key in options.columns() if key not in left_out])
    except PerfError:  # said when the session began, which is no reason to go without a log
        return usual
    return first + chosen
