"""What the commands that read run files call for calls."""

from __future__ import annotations

from flagscale_perf.toy.figures import TABLE
from flagscale_perf.toy.records import CallsRecord

from flagscale_perf.analysis.blocks import Quantity, Report, Section
from flagscale_perf.analysis.blocks import Table as Rows
from flagscale_perf.analysis.instrument import Instrument
from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.timeline import Timeline
from flagscale_perf.spine.figures import Rows as FigureRows


class Content:
    """Everything, for programs."""

    def __init__(self, rows: list[dict[str, object]]) -> None:
        self._rows = rows

    def as_dict(self) -> dict[str, object]:
        return {"calls": self._rows}


def report(session: Session) -> Report:
    """Every interval of calls in a table."""
    figures = FigureRows(TABLE, session.header)
    rows = [figures.csv(record) for record in session.records(CallsRecord)]
    units = [figure.unit.name for figure in TABLE.figures]
    cells = [[Quantity(value, unit) for value, unit in zip(row.values(), units, strict=True)] for row in rows]
    table = Rows([figure.label for figure in TABLE.figures], cells, len(TABLE.figures))
    section = Section("calls", "Calls", "Calls", [table])
    csv = [TABLE.csv_keys(), *(list(row.values()) for row in rows)]
    return Report(title="Toy run", facts=[], sections=[section], content=Content(rows), rows=csv)


INSTRUMENT = Instrument(report=report, timeline=Timeline)
