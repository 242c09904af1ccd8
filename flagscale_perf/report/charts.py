"""Series, heat maps and waterfalls as data for plotly.js. page.js places them and sets the colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from flagscale_perf.analysis.blocks import HeatMap, Layer, Line, Panel, Series, Waterfall
from flagscale_perf.report.axes import MARKS, bars_of, lines_of, title_of, value_range
from flagscale_perf.report.format import in_a_cell, shown
from flagscale_perf.report.palette import AMOUNTS, HEAT_MAP
from flagscale_perf.spine.units import printable

Chart = dict[str, Any]

_PANEL_PX, _GAP_PX, _TOP_PX, _BOTTOM_PX, _LOG_PX = 150, 60, 40, 46, 420
_FEW_POINTS = 80  # up to here each has a dot
_DIGITS = 5
_AT_LEFT = {
    "xref": "paper",
    "yref": "paper",
    "x": 0,
    "xanchor": "left",
    "yanchor": "bottom",
    "xshift": -1,
    "yshift": 4,
    "showarrow": False,
}
_COLOUR_BAR = {
    "orientation": "h",
    "x": 0,
    "xanchor": "left",
    "y": 1,
    "yanchor": "bottom",
    "lenmode": "pixels",
    "len": 260,
    "thickness": 10,
    "outlinewidth": 0,
}
_LOG = {"type": "log", "hoverformat": ".3~s", "exponentformat": "SI"}
_PLAIN = {"tickformat": ",.3~r", "hoverformat": ",.4~g"}  # of values, whose unit has a prefix
_ROW_PX, _MOST_NAMED = 19, 60  # of a heat map with named columns
Drawn = Series | HeatMap | Waterfall


def chart_of(block: Drawn) -> Chart:
    """Data and layout for plotly.js. Charts of the same "sync" zoom together."""
    if isinstance(block, Waterfall):
        return _waterfall(block) | {"sync": False}
    made = _map(block) if isinstance(block, HeatMap) else _stacked(block)
    is_own = bool(block.columns) if isinstance(block, HeatMap) else block.is_log
    return made | {"sync": not is_own}


def label(words: str) -> str:
    """Text for plotly.js, which would read some of it as HTML."""
    return escape(printable(words))


def colour(name: str) -> str:
    """The name of a colour, which page.js replaces by that of the current theme."""
    return f"var(--{name})"


def _stacked(series: Series) -> Chart:
    """Panels one above another on a shared axis. Each name stands once in the legend."""
    panels = series.panels
    inner_px = len(panels) * _PANEL_PX + (len(panels) - 1) * _GAP_PX
    hover = {
        "anchor": _axis("y", len(panels) - 1),
        "unifiedhovertitle": {"text": f"{label(series.axis)} %{{x}}"},
    }
    layout: dict[str, Any] = {
        "height": inner_px + _TOP_PX + _BOTTOM_PX,
        "margin": {"t": _TOP_PX, "b": _BOTTOM_PX},
        "hovermode": "x unified",
        "hoversubplots": "axis",
        "xaxis": _shared(series) | hover,
        "annotations": [],
    }
    drawn: list[Chart] = []
    named: set[str] = set()
    for row, panel in enumerate(panels):
        top = 1 - row * (_PANEL_PX + _GAP_PX) / inner_px
        domain: dict[str, Any] = {"domain": [max(0.0, top - _PANEL_PX / inner_px), top]}
        layout[_axis("yaxis", row)] = domain | (_LOG | _PLAIN if series.is_log else _values_axis(panel))
        lines = lines_of(panel)
        labels = {line.label for line in lines}
        legend, is_plain = _axis("legend", row), labels <= named or labels == {panel.title}
        named |= labels
        if is_plain:
            layout["annotations"].append(_title(title_of(panel, series.is_log)) | _AT_LEFT | {"y": top})
        else:
            layout[legend] = {"y": top, "title": _title(title_of(panel, series.is_log))}
        place = {"xaxis": "x", "yaxis": _axis("y", row), "legend": legend, "showlegend": not is_plain}
        drawn += [_trace(line, panel.unit) | place for line in lines]
    if series.is_log:
        layout |= {"hovermode": "closest", "height": max(_LOG_PX, layout["height"])}
        layout["xaxis"] = {"title": {"text": label(series.axis)}, "anchor": hover["anchor"]} | _LOG
    return {"data": drawn, "layout": layout}


def _values_axis(panel: Panel) -> dict[str, Any]:
    axis: dict[str, Any] = (
        {"tickformat": ".0%", "hoverformat": ".2%"} if panel.unit == "share" else {"hoverformat": ",.4~g"}
    )
    ends = value_range(panel)
    if ends is None or any(line.group for line in panel.lines):  # which lines are shown changes
        return axis | ({"rangemode": "tozero"} if panel.begins_at_zero else {})
    return axis | {"range": _compact(ends)}


def _title(words: str) -> dict[str, Any]:
    return {"text": f"<b>{label(words)}</b>", "font": {"color": colour("ink"), "size": 13}}


def _trace(line: Line, unit: str) -> Chart:
    shade, unit = colour(line.colour), "" if unit == "share" else label(unit)
    few = len(line.x) <= _FEW_POINTS
    trace: Chart = {
        "type": "scatter",
        "mode": "lines+markers" if few else "lines",
        "name": label(line.label),
        "x": list(line.x),
        "y": _compact(line.y),
        "line": {"color": shade, "width": 1.75},
        "marker": {"size": 4},
        "hovertemplate": f"%{{y}} {unit}",
    }
    if line.group:
        trace |= {"meta": {"group": line.group}}
    if line.texts:
        trace |= {"text": [label(words) for words in line.texts], "hovertemplate": "%{text}"}
    return trace | _style(line, shade)


def _style(line: Line, shade: str) -> Chart:
    if line.style == "area":
        return {"mode": "lines", "stackgroup": "all", "fillcolor": shade, "line": {"width": 0}}
    if line.style == "dashed":
        return {"line": {"color": shade, "width": 1.75, "dash": "5px,3px"}}
    if line.style in MARKS:
        edge = {"line": {"width": 1.5}} if line.style == "diamond" else {}
        symbol, _ = MARKS[line.style]
        return {"mode": "markers", "marker": {"symbol": symbol, "size": 7, "color": shade} | edge}
    return {}


def _cells(layer: Layer, where: str) -> Chart:
    """The legend of the colours, and the text under the pointer."""
    if layer.unit == "share":
        scale, words = {"title": _title(layer.label), "tickformat": ".0%"}, "%{z:.1%}"
    else:
        scale, words = {"title": _title(f"{layer.label}, {layer.unit}")}, f"%{{z:.1f}} {layer.unit}"
    return {"colorbar": scale | _COLOUR_BAR, "hovertemplate": f"{where}{words}<extra></extra>"}


def _map(heat: HeatMap) -> Chart:
    """All layers; the first is visible."""
    where = f"{heat.axis} %{{x}}" if heat.columns else f"about {heat.axis} %{{x:.0f}}"
    traces: list[Chart] = [
        {
            "type": "heatmap",
            "x": list(heat.edges),  # where the cells begin, and the end
            "y": [label(row) for row in heat.rows],
            "z": [_compact(row) for row in layer.values],
            "name": label(layer.label),
            "visible": place == 0,
            "colorscale": HEAT_MAP,
            "hoverongaps": False,
            **_cells(layer, f"{heat.row_name} %{{y}}, {where}<br>{layer.label} "),
        }
        for place, layer in enumerate(heat.layers)
    ]
    rows = {
        "title": {"text": heat.row_name, "standoff": 8},
        "type": "category",
        "autorange": "reversed",
        "showgrid": False,
        "ticks": "",
    }
    outline = {"type": "rect", "line": {"color": colour("red"), "width": 2}}
    layout = {
        "height": min(680, 180 + 14 * max(len(heat.rows), 8)),
        "margin": {"t": 76, "b": _BOTTOM_PX},
        "hovermode": "closest",
        "xaxis": _shared(heat) | {"showgrid": False},
        "yaxis": rows,
        "shapes": [
            outline | {"x0": begin, "x1": end, "y0": row - 0.5, "y1": row + 0.5}
            for row, begin, end in heat.outlines
        ],
    }
    if heat.columns:
        for trace, layer in zip(traces, heat.layers, strict=True):
            trace["x"] = [label(name) for name in heat.columns]
            trace |= _in_figures(trace, layer.unit)
        below = {"text": label(heat.axis), "standoff": 8}
        layout["xaxis"] = {"type": "category", "title": below, "showgrid": False}
        layout["height"] = _named_height(heat)
        rows["dtick"] = max(1, len(heat.rows) // _MOST_NAMED)
    return {"data": traces, "layout": layout}


def _in_figures(trace: Chart, unit: str) -> Chart:
    """A map whose cells show their values. Twice the colour is twice the time: a scale by the logarithm makes
    what is small look like what is large.
    """
    values: Sequence[Sequence[float | None]] = trace["z"]
    return {
        "colorscale": [[place / (len(AMOUNTS) - 1), shade] for place, shade in enumerate(AMOUNTS)],
        "zmin": 0,
        "zmax": max((each for row in values for each in row if each), default=1.0),
        "colorbar": trace["colorbar"] | {"title": _title(unit), "nticks": 5},  # a button names the layer
        "text": [["" if not each else in_a_cell(each, unit) for each in row] for row in values],
        "texttemplate": "%{text}",
    }


def _named_height(heat: HeatMap) -> int:
    """Height for a line of text in each row, up to a bound, and for the slanting names of the columns."""
    names_px = min(160, 4 * max(len(name) for name in heat.columns))
    return min(900, 76 + _ROW_PX * max(len(heat.rows), 6)) + _BOTTOM_PX + names_px


def _waterfall(fall: Waterfall) -> Chart:
    """A trace for each label."""
    lanes = [label(lane.label) for lane in fall.lanes]
    behind = ["  ".join(label(shown(cell)) for cell in lane.cells) for lane in fall.lanes]
    unit = label(fall.unit)
    traces: list[Chart] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": label(bars.label),
            "y": lanes,
            "x": _compact(bars.lengths),
            "base": _compact(bars.starts),
            "marker": {"color": colour(bars.colour)},
            "customdata": behind,
            "hovertemplate": f"%{{y}} {label(bars.label)}: %{{x:.3f}} {unit}  %{{customdata}}<extra></extra>",
        }
        for bars in bars_of(fall)
    ]
    return {"data": traces, "layout": _lanes(fall) | {"barmode": "overlay", "bargap": 0.25}}


def _lanes(fall: Waterfall) -> dict[str, Any]:
    return {
        "height": 130 + 30 * max(len(fall.lanes), 3),
        "margin": {"t": 60, "b": _BOTTOM_PX, "l": 130},
        "hovermode": "closest",
        "xaxis": {"title": {"text": label(fall.unit)}, "rangemode": "tozero"},
        "yaxis": {"type": "category", "autorange": "reversed", "showgrid": False, "ticks": ""},
        "legend": {"y": 1, "title": _title(fall.title), "traceorder": "normal"},
    }


def _shared(block: Series | HeatMap) -> dict[str, Any]:
    axis: dict[str, Any] = {"title": {"text": label(block.axis)}, "hoverformat": ",d"}
    return axis | ({} if block.span is None else {"range": list(block.span)})


def _axis(name: str, row: int) -> str:
    return name if row == 0 else f"{name}{row + 1}"


def _compact(figures: Iterable[float | None]) -> list[float | None]:
    """Rounded to the digits that a chart can show, so that the page stays small."""
    return [None if figure is None else float(f"{figure:.{_DIGITS}g}") for figure in figures]
