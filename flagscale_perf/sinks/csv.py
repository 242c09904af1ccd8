"""A table of the instrument's figures, for spreadsheets and dataframes."""

from __future__ import annotations

from typing import ClassVar

from flagscale_perf.sinks.base import FileSink, SinkContext
from flagscale_perf.spine.figures import Rows, csv_line
from flagscale_perf.spine.files import AppendFile, open_shared
from flagscale_perf.spine.records import Record
from flagscale_perf.spine.session import intervals_name


class CsvSink(FileSink):
    """`perf_intervals_<session>.csv`, asked for by `perf_csv`."""

    name: ClassVar[str] = "CSV"
    cost: ClassVar[str] = "no new rows in it; the run file has them all"
    option: ClassVar[str | None] = "perf_csv"

    def __init__(self, context: SinkContext) -> None:
        table = context.presentation.table
        self._rows = Rows(table, context.header)
        head = csv_line(table.csv_keys()).encode()
        path = context.directory / intervals_name(context.header.session_id)
        self._file = AppendFile(path, open_shared, lambda fresh: head if fresh else b"")

    def write(self, record: Record) -> None:
        """Keeps the record's row, if it has one."""
        if self._rows.is_row(record):
            self._file.write(csv_line(self._rows.csv(record).values()).encode())
