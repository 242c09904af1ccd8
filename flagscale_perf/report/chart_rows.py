"""The values of a chart as rows for a spreadsheet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from flagscale_perf.analysis.blocks import Block, Boxes, HeatMap, Series, StackedBar, Waterfall
from flagscale_perf.report.format import shown

Rows = Iterable[Sequence[Any]]


def rows_of(block: Block) -> tuple[str, Rows] | None:
    """A file name, the column heads and the rows; None where the block is no chart."""
    match block:
        case HeatMap():
            return block.key, _heat_map(block)
        case Waterfall():
            return block.key, _waterfall(block)
        case Boxes():
            return block.key, _boxes(block)
        case Series():
            return block.key, _series(block)
        case StackedBar():
            return _file_name(shown(block.title)), _bar(block)
        case _:
            return None


def _heat_map(heat: HeatMap) -> Rows:
    columns = heat.columns or [str(edge) for edge in heat.edges[:-1]]
    yield "shown", heat.row_name, *columns
    for layer in heat.layers:
        for name, values in zip(heat.rows, layer.values, strict=True):
            yield f"{layer.label}, {layer.unit}", name, *values


def _waterfall(fall: Waterfall) -> Rows:
    yield "lane", "part", "start", f"value, {fall.unit}"
    for lane in fall.lanes:
        start = lane.start
        for part in lane.parts:
            yield lane.label, part.label, start, part.value
            start += part.value or 0.0


def _boxes(boxes: Boxes) -> Rows:
    yield "row", "low", "quarter", "median", "three_quarters", "high"
    for row in boxes.rows:
        yield row.label, row.low, row.quarter, row.median, row.three_quarters, row.high


def _series(series: Series) -> Rows:
    yield "panel", "unit", "line", series.axis, "value", "text"
    for panel in series.panels:
        for line in panel.lines:
            texts = line.texts or [""] * len(line.x)
            for x, y, text in zip(line.x, line.y, texts, strict=True):
                yield panel.title, panel.unit, line.label, x, y, text


def _bar(bar: StackedBar) -> Rows:
    yield "part", f"value, {bar.unit}", "share"
    for part in bar.parts:
        yield part.label, part.value, part.share


def _file_name(text: str) -> str:
    return "_".join("".join(letter if letter.isalnum() else " " for letter in text).split())
