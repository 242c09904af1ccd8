"""The charts of a page as data for plotly.js: what to draw. Where it stands on the page and its colours are up to page.js."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from flagscale_perf.analysis.report import Point, Report, SlowStep
from flagscale_perf.analysis.tables import Memory, Ranks, Straggler
from flagscale_perf.core.phases import GROUPS
from flagscale_perf.core.printable import printable

Chart = dict[str, Any]
Trace = dict[str, Any]

_PANEL_PX, _GAP_PX, _TOP_PX, _BOTTOM_PX = 150, 52, 44, 46
_FEW_POINTS = 80  # up to here each has a dot
_MAX_OUTLINES = 50
_DIGITS = 5
# Colours of page.css, after Okabe and Ito's palette for the colour-blind.
GROUP_COLOURS = {
    "Forward": "--sky", "Backward": "--blue", "Optim": "--green", "Data": "--orange", "Comm": "--red",
    "Pipe": "--purple", "Other": "--grey", "Between": "--faint",
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
    axis: dict[str, Any] = field(default_factory=dict)


def label(words: str) -> str:
    """Text from anywhere for plotly.js, which knows some HTML."""
    return escape(printable(words))


def colour(name: str) -> str:
    """A colour of page.css; page.js puts in what it is in the theme shown."""
    return f"var({name})"


def trend(report: Report) -> Chart:
    """The run over its iterations; without warm-up, which would flatten everything else."""
    points = [point for point in report.trend.points if not point.is_warmup]
    panels = [
        Panel("TFLOPS per GPU", [_line(points, "TFLOPS/GPU", "--blue", _true(lambda p: p.tflops_per_gpu)), *_suspects(points)]),
        Panel(
            "Share of the peak",
            [
                _line(points, "MFU", "--blue", _true(lambda p: p.mfu)),
                _line(points, "HFU", "--orange", _true(lambda p: p.hfu)) | _dashed(),
            ],
            {"tickformat": ".0%", "hoverformat": ".2%"},
        ),
        Panel(
            "Iteration time, ms",
            [
                _line(points, "max", "--faint", lambda p: p.max_ms),
                _line(points, "p95", "--orange", lambda p: p.p95_ms),
                _line(points, "p50", "--blue", lambda p: p.p50_ms),
                *_slow(report.trend.slow_steps),
            ],
        ),
        Panel("Tokens per second", [_line(points, "tokens/s", "--green", lambda p: p.tokens_per_s)], {"hoverformat": ",.0f"}),
        Panel(
            "Pauses in an interval, s",
            [
                _bars(points, "evaluation", "--sky", lambda p: p.eval_s),
                _bars(points, "checkpoint", "--purple", lambda p: p.checkpoint_s),
            ],
        ),
    ]
    return stacked(panels)


def phases(report: Report) -> Chart:
    """A mean step's time by group as a stacked area, and what the pipeline makes it wait."""
    points = [point for point in report.trend.points if point.groups_ms is not None and not point.is_warmup]
    areas = [
        _line(points, name, shade, _group(name)) | {"stackgroup": "step", "mode": "lines", "fillcolor": colour(shade), "line": {"width": 0}}
        for name, shade in GROUP_COLOURS.items()
        if name in GROUPS
    ]
    waits = [
        _line(points, "bubble", "--purple", lambda p: p.bubble_ms),
        _line(points, "imbalance", "--orange", lambda p: p.imbalance_ms) | _dashed(),
    ]
    return stacked([Panel("Mean step, ms", areas), Panel("Waiting for other stages, ms", waits)])


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
        limit = {"x": ends, "y": [totals.device_gb] * len(ends), "name": "device", "mode": "lines", "type": "scatter"}
        traces.append(limit | {"line": {"color": colour("--red"), "dash": "dash", "width": 1.5}})
    return stacked([Panel("Memory, GB", traces, {"rangemode": "tozero"})])


def hardware(points: Sequence[Point]) -> Chart:
    """Power, clock and temperature of rank 0's device, and where something capped its clock."""
    capped = [point for point in points if point.throttle]
    marks = {
        "x": [point.iteration for point in capped],
        "y": [point.sm_clock_mhz for point in capped],
        "text": [label(point.throttle or "") for point in capped],
        "hovertemplate": "%{text}",
        "name": "throttled",
        "mode": "markers",
        "type": "scatter",
        "marker": {"color": colour("--red"), "symbol": "triangle-down", "size": 8},
    }
    return stacked(
        [
            Panel("Power, W", [_line(points, "power", "--orange", lambda p: p.power_w)]),
            Panel("SM clock, MHz (lowest)", [_line(points, "clock", "--blue", lambda p: p.sm_clock_mhz), *([marks] if capped else [])]),
            Panel("Temperature, °C (highest)", [_line(points, "temperature", "--red", lambda p: p.temperature_c)]),
            Panel("Tokens per joule", [_line(points, "tokens/J", "--green", lambda p: p.tokens_per_joule)]),
        ]
    )


def ranks(found: Ranks, stragglers: Sequence[Straggler]) -> Chart:
    """Heat maps, of which one is shown: ranks from top to bottom, stretches from left to right; stragglers have an outline."""
    rows = [str(one.first_rank) if one.first_rank == one.last_rank else f"{one.first_rank}–{one.last_rank}" for one in found.entries]
    traces = [
        {
            "type": "heatmap",
            "x": [stretch[-1] for stretch in found.stretches],
            "y": rows,
            "z": [_compact(row) for row in zip(*getattr(found, name), strict=True)],
            "name": title,
            "visible": name == "work_ms",
            "colorscale": "Cividis",
            "hoverongaps": False,
            "colorbar": {"title": {"text": f"{title}, {unit_name}", "side": "right"}, "thickness": 12, "outlinewidth": 0},
            "hovertemplate": f"rank %{{y}}, to iteration %{{x}}<br>{title} %{{z:.1f}} {unit_name}<extra></extra>",
        }
        for name, (title, unit_name) in RANK_MATRICES.items()
    ]
    layout = {
        "height": min(620, 150 + 14 * max(len(rows), 8)),
        "margin": {"t": 12, "b": _BOTTOM_PX},
        "hovermode": "closest",
        "xaxis": {"title": {"text": "iteration"}, "showgrid": False},
        "yaxis": {"title": {"text": "rank"}, "type": "category", "autorange": "reversed", "showgrid": False, "ticks": ""},
        "shapes": _outlines(found, stragglers),
    }
    return {"data": traces, "layout": layout}


def _outlines(found: Ranks, stragglers: Sequence[Straggler]) -> list[dict[str, Any]]:
    row_of = {rank: row for row, one in enumerate(found.entries) for rank in range(one.first_rank, one.last_rank + 1)}
    places = ((one, row) for one in stragglers[:_MAX_OUTLINES] for row in sorted({row_of[rank] for rank in one.ranks if rank in row_of}))
    line = {"color": colour("--red"), "width": 2}
    return [
        {"type": "rect", "x0": one.first_iteration, "x1": one.iteration, "y0": row - 0.5, "y1": row + 0.5, "line": line}
        for one, row in places
    ]


def stacked(panels: Iterable[Panel]) -> Chart:
    """The panels that have anything to show, under each other; empty where none has."""
    told = [(panel, [trace for trace in panel.traces if any(value is not None for value in trace["y"])]) for panel in panels]
    shown = [(panel, traces) for panel, traces in told if traces]
    if not shown:
        return {}
    inner_px = len(shown) * _PANEL_PX + (len(shown) - 1) * _GAP_PX
    layout: dict[str, Any] = {
        "height": inner_px + _TOP_PX + _BOTTOM_PX,
        "margin": {"t": _TOP_PX, "b": _BOTTOM_PX},
        "hovermode": "x unified",
        "hoversubplots": "axis",
        "barmode": "stack",
        "xaxis": {"title": {"text": "iteration"}, "anchor": _axis("y", len(shown) - 1), "hoverformat": ",d", "unifiedhovertitle": {"text": "iteration %{x}"}},
    }  # fmt: skip
    drawn = []
    for row, (panel, traces) in enumerate(shown):
        top = 1 - row * (_PANEL_PX + _GAP_PX) / inner_px
        legend = "legend" + ("" if row == 0 else str(row + 1))
        layout[_axis("yaxis", row)] = {"domain": [max(0.0, top - _PANEL_PX / inner_px), top], "hoverformat": ",.4~g"} | panel.axis
        layout[legend] = {"y": top, "title": {"text": panel.title}}
        drawn += [trace | {"xaxis": "x", "yaxis": _axis("y", row), "legend": legend, "showlegend": True} for trace in traces]
    return {"data": drawn, "layout": layout, "sync": True}


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


def _dashed() -> Mapping[str, Any]:
    return {"line": {"color": colour("--orange"), "width": 1.75, "dash": "5px,3px"}}


def _bars(points: Sequence[Point], name: str, shade: str, figure: Callable[[Point], float]) -> Trace:
    """Only where there is something, so that a run without pauses has no such diagram."""
    some = [point for point in points if figure(point) > 0]
    heights = _compact(figure(point) for point in some)
    return {"type": "bar", "name": name, "x": [p.iteration for p in some], "y": heights, "marker": {"color": colour(shade)}}


def _true(figure: Callable[[Point], float | None]) -> Callable[[Point], float | None]:
    return lambda point: None if point.is_suspect else figure(point)


def _suspects(points: Sequence[Point]) -> list[Trace]:
    """Intervals above the peak, in no average: shown as what they are."""
    some = [point for point in points if point.is_suspect]
    trace = _line(some, "suspect", "--red", lambda p: p.tflops_per_gpu)
    return [trace | {"mode": "markers", "marker": {"symbol": "x-thin-open", "size": 8, "color": colour("--red")}}] if some else []


def _slow(steps: Sequence[SlowStep]) -> list[Trace]:
    if not steps:
        return []
    trace = {"type": "scatter", "mode": "markers", "name": "slow step", "x": [s.iteration for s in steps]}
    marker = {"symbol": "diamond-open", "size": 7, "color": colour("--red"), "line": {"width": 1.5}}
    return [trace | {"y": _compact(step.iteration_ms for step in steps), "marker": marker}]


def _compact(figures: Iterable[float | None]) -> list[float | None]:
    """As many digits as an eye can see, so that the page stays small."""
    return [None if figure is None else float(f"{figure:.{_DIGITS}g}") for figure in figures]
