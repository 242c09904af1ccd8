"""What of a training is drawn: the trend, phases, ranks, memory and the device over the iterations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from flagscale_perf.analysis.blocks import HeatMap, Layer, Line, Panel, Series, StackedBar, Stripe
from flagscale_perf.training.analysis.report import Point, SlowStep, TrainingReport
from flagscale_perf.training.analysis.tables import GoodputBar, Ranks, Straggler
from flagscale_perf.training.phases import GROUP_WORDS

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
_PAUSE_S = 0.001  # what is shorter only looked whether one is due
AXIS = "iteration"

Figure = Callable[[Point], float | None]


def trend(found: TrainingReport) -> Series:
    """Throughput and iteration time; without warm-up, which would flatten everything else."""
    points = _settled(found)
    steps = found.trend.slow_steps
    highest = _line(points, "max", "faint", _of("iteration_max_ms"))
    p95 = _line(points, "p95", "orange", _of("iteration_p95_ms"))
    panels = [
        Panel(
            "TFLOPS per GPU",
            "",
            [_line(points, "TFLOPS per GPU", "blue", _true("tflops_per_gpu")), _suspects(points)],
        ),
        Panel(
            "Share of the peak",
            "share",
            [
                _line(points, "MFU", "blue", _true("mfu")),
                _line(points, "HFU", "orange", _true("hfu"), "dashed"),
            ],
        ),
        Panel(
            "Iteration time",
            "ms",
            [
                *([highest] if highest.y != p95.y else []),  # else it would lie below p95
                p95,
                _line(points, "p50", "blue", _of("iteration_p50_ms")),
                _slow(steps),
            ],
        ),
        Panel("Tokens per second", "", [_line(points, "Tokens per second", "green", _of("tokens_per_s"))]),
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
    areas = [
        _line(points, GROUP_WORDS[name], colour, _group(name), "area")
        for name, colour in GROUP_COLOURS.items()
    ]
    waits = [
        _line(points, "bubble", "red", _of("bubble_ms")),
        _line(points, "imbalance", "orange", _of("imbalance_ms"), "dashed"),
    ]
    panels = [Panel("Mean step", "ms", areas), Panel("Waiting for other stages", "ms", waits)]
    return _series("phases", "Phases of a mean step over the run", panels, found)


def memory(found: TrainingReport) -> Series:
    """Allocated and reserved memory, the peak, and what the device has."""
    points, device_gb = found.trend.points, found.memory.device_gb
    lines = [
        _line(points, "reserved", "faint", _of("memory_reserved_gb")),
        _line(points, "allocated", "sky", _of("memory_gb")),
        _line(points, "peak", "blue", _of("memory_peak_gb")),
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
        Panel("Power", "W", [_line(points, "Power", "orange", _of("power_w"))]),
        Panel("SM clock", "MHz", [_line(points, "lowest", "blue", _of("sm_clock_mhz")), caps]),
        Panel("Temperature", "°C", [_line(points, "highest", "red", _of("temperature_c"))]),
        Panel("Tokens per joule", "", [_line(points, "Tokens per joule", "green", _of("tokens_per_joule"))]),
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
    return HeatMap("ranks", title, "rank", rows, AXIS, _span(points), edges, layers, outlines)


def goodput(bar: GoodputBar) -> StackedBar:
    """The whole session by classes of time."""
    parts = [
        Stripe(part.label, part.dur_s, part.share, _CLASS_COLOURS.get(part.name, "grey"))
        for part in bar.parts
    ]
    return StackedBar("Goodput", "s", parts)


def _outlines(ranks: Ranks, stragglers: Sequence[Straggler]) -> list[tuple[int, float, float]]:
    row_of = {
        rank: row
        for row, one in enumerate(ranks.entries)
        for rank in range(one.first_rank, one.last_rank + 1)
    }
    return [
        (row, one.first_iteration, one.iteration)
        for one in stragglers[:_MAX_OUTLINES]
        for row in sorted({row_of[rank] for rank in one.ranks if rank in row_of})
    ]


def _series(key: str, title: str, panels: Sequence[Panel], found: TrainingReport) -> Series:
    return drawn_of(Series(key, title, panels, AXIS, _span(found.trend.points)))


def drawn_of(series: Series) -> Series:
    """With the panels and lines only that have anything to show."""
    panels = (
        replace(panel, lines=[line for line in panel.lines if any(value is not None for value in line.y)])
        for panel in series.panels
    )
    return replace(series, panels=[panel for panel in panels if panel.lines])


def _span(points: Sequence[Point]) -> tuple[float, float] | None:
    return (points[0].number("first_iteration") or 0, points[-1].iteration) if len(points) > 1 else None


def _settled(found: TrainingReport) -> list[Point]:
    return [point for point in found.trend.points if not point.figures["warmup_only"]]


def _line(points: Sequence[Point], label: str, colour: str, figure: Figure, style: str = "line") -> Line:
    return Line(
        label, [point.iteration for point in points], [figure(point) for point in points], colour, style
    )


def _of(name: str) -> Figure:
    return lambda point: point.number(name)


def _true(name: str) -> Figure:
    return lambda point: None if point.figures["suspect"] else point.number(name)


def _group(name: str) -> Figure:
    return lambda point: (point.groups_ms or {}).get(name)


def _pauses(points: Sequence[Point], label: str, colour: str, name: str) -> Line:
    def seconds(point: Point) -> float:
        return (point.number(name) or 0) / _MS_PER_S

    return _line([point for point in points if seconds(point) > _PAUSE_S], label, colour, seconds, "dot")


def _suspects(points: Sequence[Point]) -> Line:
    suspects = [point for point in points if point.figures["suspect"]]
    return _line(suspects, "suspect", "red", _of("tflops_per_gpu"), "cross")


def _slow(steps: Sequence[SlowStep]) -> Line:
    return Line(
        "slow step",
        [step.iteration for step in steps],
        [step.iteration_ms for step in steps],
        "red",
        "diamond",
    )
