"""The curves of a training: trend, phases, ranks, memory and device over the iterations; and the trends and
phases of several runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from flagscale_perf.analysis.blocks import HeatMap, Layer, Line, Panel, Series, StackedBar, Stripe
from flagscale_perf.spine.figures import Value
from flagscale_perf.training.analysis.report import Point, TrainingReport
from flagscale_perf.training.analysis.tables import GoodputBar, Ranks, Straggler
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
_PAUSE_MS = 1  # what is shorter only looked whether one is due
_AXIS = "iteration"
MAX_POINTS = 400  # of a run; more than a chart has pixels for
_FIGURES_OF_RUNS = {  # a figure of `training.figures` each: title, unit
    "iteration_ms": ("Iteration time", "ms"),
    "tokens_per_s": ("Tokens per second", ""),
    "tflops_per_gpu": ("TFLOPS per GPU", ""),
    "mfu": ("Share of the peak", "share"),
    "memory_peak_gb": ("Memory", "GB"),
}
_FROM_ZERO = {"memory_peak_gb"}
_LIMITED = {"tflops_per_gpu", "mfu", "hfu"}  # not shown where they cannot be true


@dataclass(frozen=True)
class Curve:
    """The trend of one run: `points` are the figures of its intervals, `group` as in `Line`."""

    label: str
    points: Sequence[Mapping[str, Value]]
    colour: str
    style: str = "line"
    group: str = ""


def trend(found: TrainingReport) -> Series:
    """Throughput and iteration time; without warm-up, which would flatten everything else."""
    points, slow = _settled(found), found.trend.slow_steps
    suspects = [point for point in points if point.figures["suspect"]]
    suspect = [point.number("tflops_per_gpu") for point in suspects]
    slow_ms = [step.iteration_ms for step in slow]
    highest = _line(points, "max", "faint", "iteration_max_ms")
    p95 = _line(points, "p95", "orange", "iteration_p95_ms")
    panels = [
        Panel(
            "TFLOPS per GPU",
            "",
            [
                _line(points, "TFLOPS per GPU", "blue", "tflops_per_gpu"),
                Line("suspect", [point.iteration for point in suspects], suspect, "red", "cross"),
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
                *([highest] if highest.y != p95.y else []),  # else it would lie below p95
                p95,
                _line(points, "p50", "blue", "iteration_p50_ms"),
                Line("slow step", [step.iteration for step in slow], slow_ms, "red", "diamond"),
            ],
        ),
        Panel("Tokens per second", "", [_line(points, "Tokens per second", "green", "tokens_per_s")]),
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
    points = [point for point in _settled(found) if point.groups_ms is not None]
    iterations = [point.iteration for point in points]
    groups_ms = [point.groups_ms or {} for point in points]
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
    points, device_gb = found.trend.points, found.memory.device_gb
    lines = [
        _line(points, "reserved", "faint", "memory_reserved_gb"),
        _line(points, "allocated", "sky", "memory_gb"),
        _line(points, "peak", "blue", "memory_peak_gb"),
    ]
    is_read = any(value is not None for line in lines for value in line.y)
    if device_gb is not None and is_read:
        ends = [points[0].iteration, points[-1].iteration]
        lines.append(Line("device", ends, [device_gb] * len(ends), "red", "dashed"))
    panels = [Panel("Memory", "GB", lines, begins_at_zero=True)]
    return _series("memory", "Memory of rank 0's device", panels, found)


def hardware(found: TrainingReport) -> Series:
    """Power, clock and temperature of rank 0's device, and where something capped its clock."""
    points = found.trend.points
    capped = [point for point in points if point.figures["throttle"]]
    caps = Line(
        "throttled",
        [point.iteration for point in capped],
        [point.number("sm_clock_mhz") for point in capped],
        "red",
        "triangle",
        [str(point.figures["throttle"]) for point in capped],
    )
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


def goodput(bar: GoodputBar) -> StackedBar:
    """The whole session by classes of time."""
    parts = [
        Stripe(part.label, part.dur_s, part.share, _CLASS_COLOURS.get(part.name, "grey"))
        for part in bar.parts
    ]
    return StackedBar("Goodput", "s", parts)


def trends_of_runs(curves: Sequence[Curve], most: int = MAX_POINTS) -> Series:
    """The runs over each other, figure by figure, with so many points of each at most."""
    thinned = [(curve, _thinned(curve.points, most)) for curve in curves]
    panels = [
        Panel(
            title, unit, [_line_of_run(curve, points, name) for curve, points in thinned], name in _FROM_ZERO
        )
        for name, (title, unit) in _FIGURES_OF_RUNS.items()
    ]
    ends = [point for _, points in thinned for point in (points[:1] + points[-1:])]
    numbers = [number for point in ends if isinstance(number := point.get("iteration"), int | float)]
    is_fixed = len(set(numbers)) > 1 and not any(curve.group for curve in curves)
    span = (min(numbers), max(numbers)) if is_fixed else None
    return _drawn(Series("trend", "The runs over each other", panels, _AXIS, span))


def phases_of_side(label: str, times: Mapping[str, float], unit: str, room: float) -> StackedBar:
    """The phases of one side's iteration, drawn to the same scale as the others'."""
    whole = sum(times.values())
    by_group = {group: sum(times.get(name, 0.0) for name in names) for group, names in GROUPS.items()}
    parts = [
        Stripe(GROUP_WORDS[group], by_group[group], by_group[group] / whole, colour)
        for group, colour in GROUP_COLOURS.items()
        if by_group[group]
    ]
    return StackedBar(label, unit, parts, room=room, in_words=False)


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


def _settled(found: TrainingReport) -> list[Point]:
    return [point for point in found.trend.points if not point.figures["warmup_only"]]


def _line(points: Sequence[Point], label: str, colour: str, name: str, style: str = "line") -> Line:
    values = _values([point.figures for point in points], name)
    return Line(label, [point.iteration for point in points], values, colour, style)


def _pauses(points: Sequence[Point], label: str, colour: str, name: str) -> Line:
    pauses = [point for point in points if (point.number(name) or 0) > _PAUSE_MS]
    times_s = [(point.number(name) or 0) / _MS_PER_S for point in pauses]
    return Line(label, [point.iteration for point in pauses], times_s, colour, "dot")


def _thinned(points: Iterable[Mapping[str, Value]], most: int) -> list[Mapping[str, Value]]:
    settled = [point for point in points if not point.get("warmup_only")]
    stride = -(-len(settled) // most) or 1
    return settled[::-1][::stride][::-1]


def _line_of_run(curve: Curve, points: Sequence[Mapping[str, Value]], name: str) -> Line:
    numbers = [_number(point.get("iteration")) or 0 for point in points]
    return Line(curve.label, numbers, _values(points, name), curve.colour, curve.style, group=curve.group)


def _values(points: Sequence[Mapping[str, Value]], name: str) -> list[float | None]:
    is_limited = name in _LIMITED
    return [None if is_limited and point.get("suspect") else _number(point.get(name)) for point in points]


def _number(value: Value) -> float | None:
    return value if isinstance(value, int | float) else None
