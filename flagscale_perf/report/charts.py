"""The charts of a page as data for plotly.js: what to draw. Where it stands on the page and its colours are
up to page.js.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from flagscale_perf.analysis.report import Point, Report, SlowStep
from flagscale_perf.spine.units import printable
from flagscale_perf.training.analysis.tables import Memory, Ranks, Straggler
from flagscale_perf.training.phases import GROUPS

Chart = dict[str, Any]
Trace = dict[str, Any]

_PANEL_PX, _GAP_PX, _TOP_PX, _BOTTOM_PX = 150, 60, 40, 46
_FEW_POINTS = 80  # up to here each has a dot
_MAX_OUTLINES = 50
_PAUSE_S = 0.001  # what is shorter only looked whether one is due
_AT_LEFT = {
    "xref": "paper", "yref": "paper", "x": 0, "xanchor": "left", "yanchor": "bottom", "xshift": -1, "yshift": 4, "showarrow": False,
}  # fmt: skip
_DIGITS = 5
_COLOUR_BAR = {
    "orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "lenmode": "pixels", "len": 260, "thickness": 10,
    "outlinewidth": 0,
}  # fmt: skip
# Colours of page.css, after Okabe and Ito's palette for the colour-blind.
GROUP_COLOURS = {
    "Forward": "--sky", "Backward": "--blue", "Optim": "--green", "Data": "--yellow", "Comm": "--orange",
    "Pipe": "--red", "Other": "--grey", "Between": "--faint",
}  # fmt: skip
RANK_MATRICES = {
    "work_ms": ("Work", "ms"),
    "wait_ms": ("Waiting", "ms"),
    "data_ms": ("Data loading", "ms"),
    "iteration_ms": ("Iteration", "ms"),
    "memory_peak_gb": ("Peak memory", "GB"),
}


@dataclass(frozen=True)
class Panel:
    """One of the diagrams that stand under each other and share the iterations' axis."""

    title: str
    traces: list[Trace]
    unit: str = ""
    axis: dict[str, Any] = field(default_factory=dict)


def label(words: str) -> str:
    """Text from anywhere for plotly.js, which knows some HTML."""
    return escape(printable(words))


def colour(name: str) -> str:
    """A colour of page.css; page.js puts in what it is in the theme shown."""
    return f"var({name})"


def trend(report: Report) -> Chart:
    """The run over its iterations; without warm-up, which would flatten everything else."""
    points = _settled(report)
    panels = [
        Panel(
            "TFLOPS per GPU",
            [_line(points, "TFLOPS per GPU", "--blue", _true(lambda p: p.tflops_per_gpu)), _suspects(points)],
        ),
        Panel(
            "Share of the peak",
            [
                _line(points, "MFU", "--blue", _true(lambda p: p.mfu)),
                _line(points, "HFU", "--orange", _true(lambda p: p.hfu)) | _dashed(),
            ],
            axis={"tickformat": ".0%", "hoverformat": ".2%"},
        ),
        Panel(
            "Iteration time",
            [
                _line(points, "max", "--faint", lambda p: p.max_ms),
                _line(points, "p95", "--orange", lambda p: p.p95_ms),
                _line(points, "p50", "--blue", lambda p: p.p50_ms),
                _slow(report.trend.slow_steps),
            ],
            "ms",
        ),
        Panel(
            "Tokens per second",
            [_line(points, "Tokens per second", "--green", lambda p: p.tokens_per_s)],
            axis={"hoverformat": ",.0f"},
        ),
        Panel(
            "Pauses",
            [
                _marks([p for p in points if p.eval_s > _PAUSE_S], "evaluation", "--sky", lambda p: p.eval_s),
                _marks(
                    [p for p in points if p.checkpoint_s > _PAUSE_S],
                    "checkpoint",
                    "--blue",
                    lambda p: p.checkpoint_s,
                ),
            ],
            "s",
            {"rangemode": "tozero"},
        ),
    ]
    return stacked(panels, report.trend.points)


def phases(report: Report) -> Chart:
    """A mean step's time by group as a stacked area, and what the pipeline makes it wait."""
    points = [point for point in _settled(report) if point.groups_ms is not None]
    areas = [
        _line(points, name, shade, _group(name))
        | {"stackgroup": "step", "mode": "lines", "fillcolor": colour(shade), "line": {"width": 0}}
        for name, shade in GROUP_COLOURS.items()
        if name in GROUPS
    ]
    waits = [
        _line(points, "bubble", "--red", lambda p: p.bubble_ms),
        _line(points, "imbalance", "--orange", lambda p: p.imbalance_ms) | _dashed(),
    ]
    return stacked(
        [Panel("Mean step", areas, "ms"), Panel("Waiting for other stages", waits, "ms")], report.trend.points
    )


def _settled(report: Report) -> list[Point]:
    return [point for point in report.trend.points if not point.is_warmup]


def _group(name: str) -> Callable[[Point], float | None]:
    return lambda point: (point.groups_ms or {}).get(name)


def memory(points: Sequence[Point], totals: Memory) -> Chart:
    """Allocated and reserved memory, the peak, and what the device has."""
    traces = [
        _line(points, "reserved", "--faint", lambda p: p.memory_reserved_gb),
        _line(points, "allocated", "--sky", lambda p: p.memory_gb),
        _line(points, "peak", "--blue", lambda p: p.memory_peak_gb),
    ]
    if totals.device_gb is not None and points:
        ends = [points[0].iteration, points[-1].iteration]
        limit = {
            "x": ends,
            "y": [totals.device_gb] * len(ends),
            "name": "device",
            "mode": "lines",
            "type": "scatter",
        }
        traces.append(limit | {"line": {"color": colour("--red"), "dash": "dash", "width": 1.5}})
    return stacked([Panel("Memory", traces, "GB", {"rangemode": "tozero"})], points)


def hardware(points: Sequence[Point]) -> Chart:
    """Power, clock and temperature of rank 0's device, and where something capped its clock."""
    capped = [point for point in points if point.throttle]
    marks = _marks(capped, "throttled", "--red", lambda p: p.sm_clock_mhz, "triangle-down")
    marks |= {"text": [label(point.throttle or "") for point in capped], "hovertemplate": "%{text}"}
    return stacked(
        [
            Panel("Power", [_line(points, "Power", "--orange", lambda p: p.power_w)], "W"),
            Panel("SM clock", [_line(points, "lowest", "--blue", lambda p: p.sm_clock_mhz), marks], "MHz"),
            Panel("Temperature", [_line(points, "highest", "--red", lambda p: p.temperature_c)], "°C"),
            Panel(
                "Tokens per joule",
                [_line(points, "Tokens per joule", "--green", lambda p: p.tokens_per_joule)],
            ),
        ],
        points,
    )


def ranks(found: Ranks, stragglers: Sequence[Straggler], points: Sequence[Point]) -> Chart:
    """Heat maps, of which one is shown: ranks from top to bottom, stretches from left to right; stragglers
    have an outline.
    """
    rows = [
        str(one.first_rank) if one.first_rank == one.last_rank else f"{one.first_rank}–{one.last_rank}"
        for one in found.entries
    ]
    traces = [
        {
            "type": "heatmap",
            "x": [
                *(first for first, _ in found.stretches),
                found.stretches[-1][-1],
            ],  # where the cells begin, and the end
            "y": rows,
            "z": [_compact(row) for row in zip(*getattr(found, name), strict=True)],
            "name": title,
            "visible": name == "work_ms",
            "colorscale": "Cividis",
            "hoverongaps": False,
            "colorbar": {
                "title": {
                    "text": f"<b>{title}, {unit_name}</b>",
                    "font": {"color": colour("--ink"), "size": 13},
                }
            }
            | _COLOUR_BAR,
            "hovertemplate": f"rank %{{y}}, about iteration %{{x:.0f}}<br>{title} %{{z:.1f}} {unit_name}<extra></extra>",
        }
        for name, (title, unit_name) in RANK_MATRICES.items()
    ]
    layout = {
        "height": min(680, 180 + 14 * max(len(rows), 8)),
        "margin": {"t": 76, "b": _BOTTOM_PX},
        "hovermode": "closest",
        "xaxis": _iterations(points) | {"showgrid": False},
        "yaxis": {
            "title": {"text": "rank"},
            "type": "category",
            "autorange": "reversed",
            "showgrid": False,
            "ticks": "",
        },
        "shapes": _outlines(found, stragglers),
    }
    return {"data": traces, "layout": layout, "sync": True}


def _outlines(found: Ranks, stragglers: Sequence[Straggler]) -> list[dict[str, Any]]:
    row_of = {
        rank: row
        for row, one in enumerate(found.entries)
        for rank in range(one.first_rank, one.last_rank + 1)
    }
    places = (
        (one, row)
        for one in stragglers[:_MAX_OUTLINES]
        for row in sorted({row_of[rank] for rank in one.ranks if rank in row_of})
    )
    line = {"color": colour("--red"), "width": 2}
    return [
        {
            "type": "rect",
            "x0": one.first_iteration,
            "x1": one.iteration,
            "y0": row - 0.5,
            "y1": row + 0.5,
            "line": line,
        }
        for one, row in places
    ]


def stacked(panels: Iterable[Panel], points: Sequence[Point]) -> Chart:
    """The panels that have anything to show, under each other, over all the points' iterations; empty where
    none has.
    """
    told = [
        (panel, [trace for trace in panel.traces if any(value is not None for value in trace["y"])])
        for panel in panels
    ]
    shown = [(panel, traces) for panel, traces in told if traces]
    if not shown:
        return {}
    inner_px = len(shown) * _PANEL_PX + (len(shown) - 1) * _GAP_PX
    layout: dict[str, Any] = {
        "height": inner_px + _TOP_PX + _BOTTOM_PX,
        "margin": {"t": _TOP_PX, "b": _BOTTOM_PX},
        "hovermode": "x unified",
        "hoversubplots": "axis",
        "xaxis": _iterations(points)
        | {"anchor": _axis("y", len(shown) - 1), "unifiedhovertitle": {"text": "iteration %{x}"}},
        "annotations": [],
    }
    drawn = []
    for row, (panel, traces) in enumerate(shown):
        top = 1 - row * (_PANEL_PX + _GAP_PX) / inner_px
        legend, is_plain = _axis("legend", row), [trace["name"] for trace in traces] == [panel.title]
        title = {
            "text": f"<b>{panel.title}{panel.unit and f', {panel.unit}'}</b>",
            "font": {"color": colour("--ink"), "size": 13},
        }
        layout[_axis("yaxis", row)] = {
            "domain": [max(0.0, top - _PANEL_PX / inner_px), top],
            "hoverformat": ",.4~g",
        } | panel.axis
        if is_plain:
            layout["annotations"].append(title | _AT_LEFT | {"y": top})
        else:
            layout[legend] = {"y": top, "title": title}
        hover = {"hovertemplate": f"%{{y}} {panel.unit}"}
        drawn += [
            hover
            | trace
            | {"xaxis": "x", "yaxis": _axis("y", row), "legend": legend, "showlegend": not is_plain}
            for trace in traces
        ]
    return {"data": drawn, "layout": layout, "sync": True}


def _iterations(points: Sequence[Point]) -> dict[str, Any]:
    """The axis that charts share."""
    axis: dict[str, Any] = {"title": {"text": "iteration"}, "hoverformat": ",d"}
    if len(points) > 1:
        axis["range"] = [points[0].first_iteration, points[-1].iteration]
    return axis


def _axis(name: str, row: int) -> str:
    return name if row == 0 else f"{name}{row + 1}"


def _line(points: Sequence[Point], name: str, shade: str, figure: Callable[[Point], float | None]) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(points) <= _FEW_POINTS else "lines",
        "name": name,
        "x": [point.iteration for point in points],
        "y": _compact(figure(point) for point in points),
        "line": {"color": colour(shade), "width": 1.75},
        "marker": {"size": 4},
    }


def _dashed() -> Trace:
    return {"line": {"color": colour("--orange"), "width": 1.75, "dash": "5px,3px"}}


def _marks(
    points: Sequence[Point],
    name: str,
    shade: str,
    figure: Callable[[Point], float | None],
    symbol: str = "circle",
) -> Trace:
    return _line(points, name, shade, figure) | {
        "mode": "markers",
        "marker": {"symbol": symbol, "size": 7, "color": colour(shade)},
    }


def _true(figure: Callable[[Point], float | None]) -> Callable[[Point], float | None]:
    return lambda point: None if point.is_suspect else figure(point)


def _suspects(points: Sequence[Point]) -> Trace:
    """Intervals above the peak, in no average: shown as what they are."""
    return _marks(
        [point for point in points if point.is_suspect],
        "suspect",
        "--red",
        lambda p: p.tflops_per_gpu,
        "x-thin-open",
    )


def _slow(steps: Sequence[SlowStep]) -> Trace:
    trace: Trace = {
        "type": "scatter",
        "mode": "markers",
        "name": "slow step",
        "x": [s.iteration for s in steps],
    }
    marker = {"symbol": "diamond-open", "size": 7, "color": colour("--red"), "line": {"width": 1.5}}
    return trace | {"y": _compact(step.iteration_ms for step in steps), "marker": marker}


def _compact(figures: Iterable[float | None]) -> list[float | None]:
    """As many digits as an eye can see, so that the page stays small."""
    return [None if figure is None else float(f"{figure:.{_DIGITS}g}") for figure in figures]
