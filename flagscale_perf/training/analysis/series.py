"""The curves of a training: trend, phases, ranks, memory and device over the iterations; and the trends and
phases of several runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from flagscale_perf.analysis.blocks import HeatMap, Layer, Line, Panel, Series, StackedBar, Stripe
from flagscale_perf.analysis.extremes import thinned
from flagscale_perf.spine.figures import Value
from flagscale_perf.training.analysis.captured import ALL_WORK
from flagscale_perf.training.analysis.report import Curves, Point, TrainingReport
from flagscale_perf.training.analysis.tables import CapturedRanks, GoodputBar, Ranks, Straggler
from flagscale_perf.training.analysis.trend import LIMITED
from flagscale_perf.training.phases import GROUP_WORDS, GROUPS

GROUP_COLOURS = {
    "Forward": "sky",
    "Backward": "blue",
    "Optim": "green",
    "Data": "yellow",
    "Comm": "orange",
    "Pipe": "red",
    "Other": "grey",
    "Between": "faint",
}
_CLASS_COLOURS = {
    "startup": "orange",
    "productive": "green",
    "evaluation": "sky",
    "checkpoint": "blue",
    "data_stall": "yellow",
    "late": "purple",
    "lost": "red",
}
_LAYERS = {
    "work_ms": ("Work", "ms"),
    "wait_ms": ("Waiting", "ms"),
    "data_ms": ("Data loading", "ms"),
    "iteration_ms": ("Iteration", "ms"),
    "memory_peak_gb": ("Peak memory", "GB"),
    "cpu_wait_share": ("Waiting for a CPU", "share"),
}
_MAX_OUTLINES = 50
_MS_PER_S = 1000
_AXIS = "iteration"
MAX_POINTS = 400  # of a run; more than a chart has pixels for
FIGURES_OF_RUNS = {  # a figure of `training.figures` each: title, unit
    "iteration_ms": ("Iteration time", "ms"),
    "tokens_per_s": ("Tokens per second", ""),
    "tflops_per_gpu": ("TFLOPS per GPU", ""),
    "mfu": ("MFU", "share"),
    "memory_peak_gb": ("Memory", "GB"),
    "loss": ("Loss", ""),
}
_FROM_ZERO = {"memory_peak_gb"}


@dataclass(frozen=True)
class Curve:
    """The trend of one run: `points` as in `report.Trend`, `group` as in `Line`."""

    label: str
    points: Curves
    colour: str
    style: str = "line"
    group: str = ""


def trend(found: TrainingReport) -> Series:
    """Throughput and iteration time; without warm-up, which would flatten everything else."""
    points, slow = found.trend.curves, found.trend.slow_steps
    count = found.trend.slow_step_count
    some = f", the {len(slow):,} longest of {count:,}" if count > len(slow) else ""
    slow_ms = [step.iteration_ms for step in slow]
    highest = _line(points, "max", "faint", "iteration_max_ms")
    p95 = _line(points, "p95", "orange", "iteration_p95_ms")
    panels = [
        Panel(
            "TFLOPS per GPU",
            "",
            [
                _line(points, "TFLOPS per GPU", "blue", "tflops_per_gpu"),
                _line(points, "suspect", "red", "suspect", "cross"),
            ],
        ),
        Panel(
            "Share of the peak",
            "share",
            [
                _line(points, "MFU", "blue", "mfu"),
                _line(points, "HFU", "orange", "hfu", "dashed"),
            ],
        ),
        Panel(
            "Iteration time",
            "ms",
            [
                highest,
                *([p95] if p95.y != highest.y else []),  # of fewer than 20 steps it is the longest one
                _line(points, "p50", "blue", "iteration_p50_ms"),
                Line(f"slow step{some}", [step.iteration for step in slow], slow_ms, "red", "diamond"),
            ],
        ),
        Panel("Tokens per second", "", [_line(points, "Tokens per second", "green", "tokens_per_s")]),
        Panel("Loss", "", [_line(points, "Loss", "purple", "loss")]),
        Panel("Gradient norm", "", [_line(points, "Gradient norm", "orange", "grad_norm")]),
        Panel("Learning rate", "", [_line(points, "Learning rate", "grey", "learning_rate")]),
        Panel(
            "Pauses",
            "s",
            [
                _pauses(points, "evaluation", "sky", "eval_ms"),
                _pauses(points, "checkpoint", "blue", "checkpoint_ms"),
            ],
            True,
        ),
    ]
    return _series("trend", "Throughput and iteration time over the run", panels, found)


def phases(found: TrainingReport) -> Series:
    """A mean step's time by group, stacked, and what the pipeline makes it wait."""
    points = found.trend.curves
    groups = points.get("groups", [])
    iterations, groups_ms = [at for at, *_ in groups], [each for *_, each in groups]
    areas = [
        Line(GROUP_WORDS[group], iterations, [each.get(group) for each in groups_ms], colour, "area")
        for group, colour in GROUP_COLOURS.items()
    ]
    waits = [
        _line(points, "bubble", "red", "bubble_ms"),
        _line(points, "imbalance", "orange", "imbalance_ms", "dashed"),
    ]
    panels = [Panel("Mean step", "ms", areas), Panel("Waiting for other stages", "ms", waits)]
    return _series("phases", "Phases of a mean step over the run", panels, found)


def memory(found: TrainingReport) -> Series:
    """Allocated and reserved memory, the peak, and what the device has."""
    points, device_gb = found.trend.curves, found.memory.device_gb
    lines = [
        _line(points, "reserved", "faint", "memory_reserved_gb"),
        _line(points, "allocated", "sky", "memory_gb"),
        _line(points, "peak", "blue", "memory_peak_gb"),
    ]
    is_read = any(value is not None for line in lines for value in line.y)
    if device_gb is not None and is_read:
        ends = [point.iteration for point in (found.trend.points[0], found.trend.points[-1])]
        lines.append(Line("device", ends, [device_gb] * len(ends), "red", "dashed"))
    panels = [Panel("Memory", "GB", lines, begins_at_zero=True)]
    return _series("memory", "Memory of rank 0's device", panels, found)


def hardware(found: TrainingReport) -> Series:
    """Power, clock and temperature of rank 0's device, and where something capped its clock."""
    points = found.trend.curves
    texts = [text for *_, text in points.get("capped", [])]
    caps = replace(_line(points, "throttled", "red", "capped", "triangle"), texts=texts)
    panels = [
        Panel("Power", "W", [_line(points, "Power", "orange", "power_w")]),
        Panel("SM clock", "MHz", [_line(points, "lowest", "blue", "sm_clock_mhz"), caps]),
        Panel("Temperature", "°C", [_line(points, "highest", "red", "temperature_c")]),
        Panel("Tokens per joule", "", [_line(points, "Tokens per joule", "green", "tokens_per_joule")]),
    ]
    return _series("hardware", "Power, clock and temperature of rank 0's device", panels, found)


def rank_map(ranks: Ranks, stragglers: Sequence[Straggler], points: Sequence[Point]) -> HeatMap:
    """Ranks from top to bottom, stretches from left to right; stragglers stand out."""
    rows = [
        str(one.first_rank) if one.first_rank == one.last_rank else f"{one.first_rank}–{one.last_rank}"
        for one in ranks.entries
    ]
    layers = [
        Layer(title, unit, list(zip(*getattr(ranks, name), strict=True)))
        for name, (title, unit) in _LAYERS.items()
    ]
    edges = [*(first for first, _ in ranks.stretches), ranks.stretches[-1][-1]]
    title = "Every rank over the run"
    outlines = _outlines(ranks, stragglers)
    return HeatMap("ranks", title, "rank", rows, _AXIS, _span(points), edges, layers, outlines)


def captured_map(found: CapturedRanks) -> HeatMap:
    """Captured steps from left to right; of the ranks that share a row, the worst."""
    rows = [str(first) if first == last else f"{first}–{last}" for first, last in found.rows]
    layers = [
        Layer(f"{GROUP_WORDS.get(part, part)}", "ms", values)
        for part, values in found.beyond_ms.items()
        if part == ALL_WORK or any(each for row in values for each in row)
    ]
    title = "Captured steps: longer than the stage's median rank, the worst of each row"
    edges, names = [*range(len(found.steps) + 1)], [f"step {step:,}" for step in found.steps]
    return HeatMap("captured", title, "rank", rows, "", None, edges, layers, columns=names)


def goodput(bar: GoodputBar) -> StackedBar:
    """The whole session by classes of time."""
    parts = [
        Stripe(part.label, part.dur_s, part.share, _CLASS_COLOURS.get(part.name, "grey"))
        for part in bar.parts
    ]
    return StackedBar("Goodput", "s", parts)


def trends_of_runs(curves: Sequence[Curve], most: int = MAX_POINTS) -> Series:
    """The runs over each other, figure by figure, with so many points of each at most."""
    panels = [
        Panel(title, unit, [_line_of_run(curve, name, most) for curve in curves], name in _FROM_ZERO)
        for name, (title, unit) in FIGURES_OF_RUNS.items()
    ]
    numbers = [at for panel in panels for line in panel.lines for at in (*line.x[:1], *line.x[-1:])]
    is_fixed = len(set(numbers)) > 1 and not any(curve.group for curve in curves)
    span = (min(numbers), max(numbers)) if is_fixed else None
    return _drawn(Series("trend", "The runs over each other", panels, _AXIS, span))


def phase_parts(times: Mapping[str, float]) -> list[tuple[str, float, str]]:
    """The groups of phases of one side's iteration, as `bars_to_scale` draws them."""
    by_group = {group: sum(times.get(name, 0.0) for name in names) for group, names in GROUPS.items()}
    return [
        (GROUP_WORDS[group], by_group[group], colour)
        for group, colour in GROUP_COLOURS.items()
        if by_group[group]
    ]


def _outlines(ranks: Ranks, stragglers: Sequence[Straggler]) -> list[tuple[int, float, float]]:
    row_of = {rank: row for row, one in enumerate(ranks.entries) for rank in one.ranks}
    return [
        (row, one.first_iteration, one.iteration)
        for one in stragglers[:_MAX_OUTLINES]
        for row in sorted({row_of[rank] for rank in one.ranks if rank in row_of})
    ]


def _series(key: str, title: str, panels: Sequence[Panel], found: TrainingReport) -> Series:
    return _drawn(Series(key, title, panels, _AXIS, _span(found.trend.points)))


def _drawn(series: Series) -> Series:
    """The series with only those panels and lines that have values."""
    panels = (
        replace(panel, lines=[line for line in panel.lines if any(value is not None for value in line.y)])
        for panel in series.panels
    )
    return replace(series, panels=[panel for panel in panels if panel.lines])


def _span(points: Sequence[Point]) -> tuple[float, float] | None:
    return (points[0].number("first_iteration") or 0, points[-1].iteration) if len(points) > 1 else None


def _line(curves: Curves, label: str, colour: str, name: str, style: str = "line") -> Line:
    rows = curves.get(name, [])
    return Line(label, [row[0] for row in rows], [row[1] for row in rows], colour, style)


def _pauses(curves: Curves, label: str, colour: str, name: str) -> Line:
    line = _line(curves, label, colour, name, "dot")
    return replace(line, y=[(pause or 0.0) / _MS_PER_S for pause in line.y])


def _line_of_run(curve: Curve, name: str, most: int) -> Line:
    """Half as many stretches as points: of each the lowest and the highest are drawn."""
    kept = thinned(curve.points.get(name, ()), lambda row: row[1], most // 2)
    x, y = [at for at, _ in kept], [value for _, value in kept]
    return Line(curve.label, x, y, curve.colour, curve.style, group=curve.group)


def curves_of(points: Sequence[Mapping[str, Value]]) -> Curves:
    """What is drawn of a run of which only the figures of some intervals are known, by their keys."""
    settled = [point for point in points if not point.get("warmup_only")]
    return {
        name: [(_number(point.get("iteration")) or 0, _value(point, name)) for point in settled]
        for name in FIGURES_OF_RUNS
        if settled
    }


def _value(point: Mapping[str, Value], name: str) -> float | None:
    return None if name in LIMITED and point.get("suspect") else _number(point.get(name))


def _number(value: Value) -> float | None:
    return value if isinstance(value, int | float) else None
