"""A report in the reader's language: its words by `spine.language`, block by block."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from flagscale_perf.analysis import blocks
from flagscale_perf.analysis.blocks import Cell, FileLink, Findings, Part, Quantity, Report
from flagscale_perf.report.format import shown
from flagscale_perf.spine.language import is_english, said

_PARTS = (
    *("forward", "backward", "optimizer", "other", "total"),
    *("good", "fair", "suspect", "watch", "anomaly"),
    *("completed", "running", "killed", "never"),
    *("slower", "faster"),
)
_NAMES = (  # fields of blocks that nobody reads
    *("key", "colour", "colours", "style", "tone", "tones"),
    *("unit", "group", "groups", "chosen", "name", "path"),
)
_KEPT = ("content", "rows", "reading", "tree", "tone", "complaint")  # of a report: for programs
AnyT = TypeVar("AnyT")


def translated(report: Report) -> Report:
    """The report as it is printed in the language in use; what is for programs stays as it is."""
    if is_english():
        return report
    parts = {
        each.name: _of_block(getattr(report, each.name))
        for each in dataclasses.fields(report)
        if each.name not in _KEPT
    }
    return dataclasses.replace(report, **parts)


def _of_block(value: Any) -> Any:
    if (known := _OF_TYPE.get(type(value))) is not None:
        return known(value)
    return _fields(value, ()) if dataclasses.is_dataclass(value) else value


def _of_pairs(value: blocks.Pairs) -> blocks.Pairs:
    return blocks.Pairs([(said(label), _cell(cell)) for label, cell in value.rows])


def _of_table(value: blocks.Table) -> blocks.Table:
    cells = [[_cell(cell) for cell in row] for row in value.rows]
    notes = [_cell(note) for note in value.notes]
    return dataclasses.replace(_fields(value, ("rows", "notes")), rows=cells, notes=notes)


def _of_lane(value: blocks.Lane) -> blocks.Lane:
    return dataclasses.replace(_fields(value, ("cells",)), cells=[_cell(cell) for cell in value.cells])


def _of_tile(value: blocks.Tile) -> blocks.Tile:
    return blocks.Tile(said(value.label), _cell(value.value), _cell(value.note))


def _of_findings(value: Findings) -> Findings:
    """What could not be judged; a finding is put into words by `report/findings`."""
    return Findings(
        value.found, [said(each) for each in value.unjudged], value.nothing and said(value.nothing)
    )


def _of_list(value: Any) -> Any:
    is_cell = isinstance(value, tuple) and any(isinstance(part, Quantity) for part in value)
    return _cell(value) if is_cell else [_of_block(each) for each in value]


_OF_TYPE: Mapping[type, Callable[[Any], Any]] = {
    str: said,
    list: _of_list,
    tuple: _of_list,
    blocks.Pairs: _of_pairs,
    blocks.Table: _of_table,
    blocks.Lane: _of_lane,
    blocks.Tile: _of_tile,
    Quantity: lambda value: value,
    Findings: _of_findings,
}


def _fields(value: AnyT, but: tuple[str, ...]) -> AnyT:
    parts: dict[str, Any] = {
        each.name: _of_block(getattr(value, each.name))
        for each in dataclasses.fields(value)  # type: ignore[arg-type]
        if each.name not in (*_NAMES, *but)
    }
    return dataclasses.replace(value, **parts)  # type: ignore[type-var]


def _piece(part: Part) -> Part:
    if isinstance(part, FileLink):
        return dataclasses.replace(part, text=said(part.text))
    return said(part) if isinstance(part, str) else part


def _cell(cell: Cell) -> Cell:
    """A cell in the language; a single word in it is a name, unless it is one of these."""
    if isinstance(cell, tuple) and all(isinstance(part, str | Quantity) for part in cell):
        cell = shown(cell)
    if isinstance(cell, tuple):  # with a link, which stands where it is
        return tuple(map(_piece, cell))
    return said(cell) if isinstance(cell, str) and (" " in cell or cell in _PARTS) else cell
