"""The trends of several runs in one chart, and where their iterations went side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flagscale_perf.analysis.blocks import Line, Panel, Series, StackedBar, Stripe
from flagscale_perf.spine.figures import Value
from flagscale_perf.training.analysis.series import AXIS, GROUP_COLOURS, drawn_of
from flagscale_perf.training.phases import GROUP_WORDS, GROUPS

MAX_POINTS = 400  # of a run; more than a chart has pixels for
_PANELS = {  # a figure of `training.figures` each: title, unit
    "iteration_ms": ("Iteration time", "ms"),
    "tokens_per_s": ("Tokens per second", ""),
    "tflops_per_gpu": ("TFLOPS per GPU", ""),
    "mfu": ("Share of the peak", "share"),
    "memory_peak_gb": ("Memory", "GB"),
}
_FROM_ZERO = {"memory_peak_gb"}
_LIMITED = {"tflops_per_gpu", "mfu"}  # not shown where they cannot be true


@dataclass(frozen=True)
class Curve:
    """The trend of one run: `points` are the figures of its intervals, `group` as in `Line`."""

    label: str
    points: Sequence[Mapping[str, Value]]
    colour: str
    style: str = "line"
    group: str = ""


def trends(curves: Sequence[Curve], most: int = MAX_POINTS) -> Series:
    """The runs over each other, figure by figure, with so many points of each at most."""
    thinned = [(curve, _thinned(curve.points, most)) for curve in curves]
    panels = [
        Panel(title, unit, [_line(curve, points, name) for curve, points in thinned], name in _FROM_ZERO)
        for name, (title, unit) in _PANELS.items()
    ]
    ends = [point for _, points in thinned for point in (points[:1] + points[-1:])]
    numbers = [number for point in ends if isinstance(number := point.get("iteration"), int | float)]
    is_fixed = len(set(numbers)) > 1 and not any(curve.group for curve in curves)
    span = (min(numbers), max(numbers)) if is_fixed else None
    return drawn_of(Series("trend", "The runs over each other", panels, AXIS, span))


def phases(label: str, times: Mapping[str, float], unit: str, room: float) -> StackedBar:
    """Where an iteration of one side went, drawn to the same scale as the others'."""
    whole = sum(times.values())
    parts = []
    for group, colour in GROUP_COLOURS.items():
        known = [times[name] for name in GROUPS[group] if name in times]
        value = sum(known) if known else None
        share = value / whole if value is not None and whole else None
        parts.append(Stripe(GROUP_WORDS[group], value, share, colour))
    return StackedBar(label, unit, [part for part in parts if part.value], room=room, in_words=False)


def _thinned(points: Iterable[Mapping[str, Value]], most: int) -> list[Mapping[str, Value]]:
    settled = [point for point in points if not point.get("warmup_only")]
    stride = -(-len(settled) // most) or 1
    return settled[::-1][::stride][::-1]


def _line(curve: Curve, points: Sequence[Mapping[str, Value]], name: str) -> Line:
    numbers = [_number(point.get("iteration")) or 0 for point in points]
    values = [
        None if name in _LIMITED and point.get("suspect") else _number(point.get(name)) for point in points
    ]
    return Line(curve.label, numbers, values, curve.colour, curve.style, group=curve.group)


def _number(value: Value) -> float | None:
    return value if isinstance(value, int | float) else None
