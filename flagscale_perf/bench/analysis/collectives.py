"""Collectives of a bandwidth test in figures, by size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flagscale_perf.analysis.blocks import Block, Cell, Line, Panel, Quantity, Series, Table
from flagscale_perf.analysis.fit import least_squares
from flagscale_perf.bench.analysis.source import Part, spread
from flagscale_perf.bench.records import BenchPoint
from flagscale_perf.profile.operations import bus_factor

MESSAGE = "send_recv"
# Key that makes a case of its kind -> keys that must then hold a number.
_NEEDED = {"executed": ("ranks",), "moved_bytes": ("rank", "moved_bytes")}


def measured(part: Part, **case: Any) -> list[BenchPoint]:
    """Times whose case has these words, with an operation, a valid size and valid ranks."""
    return [point for point in part.of("time", **case) if _is_whole(point) and min(point.samples) > 0]


def _is_whole(point: BenchPoint) -> bool:
    case = point.case
    needed = ["size_bytes", *(name for key, names in _NEEDED.items() if key in case for name in names)]
    if case.get("op") == MESSAGE:
        needed += ["src", "dst"]
    is_named = type(case.get("op")) is str
    return is_named and all(type(case.get(name)) is int for name in needed) and case["size_bytes"] > 0


GB = 1e9
ONE_WAY = "one way"
COLOURS = ("blue", "orange", "green", "red", "sky", "yellow", "grey")
MOST_ROWS = 48
GOOD_FIT = 0.9
HEAD = (
    "operation",
    "bytes",
    "median, us",
    "p95, us",
    "algbw, GB/s",
    "busbw, GB/s",
)


def algbw(point: BenchPoint) -> float | None:
    """Algorithm bandwidth in 10^9 bytes per second; None if it took no time."""
    size = point.case.get("moved_bytes") or point.case["size_bytes"]
    middle = spread(point.samples).median
    return float(size) / middle / GB if middle else None


def busbw(point: BenchPoint) -> float | None:
    """algbw times the factor of the executed operation: the load on each rank's link; None for one rank."""
    factor, plain = factor_of(point), algbw(point)
    return None if factor is None or plain is None else factor * plain


def factor_of(point: BenchPoint) -> float | None:
    """The factor that turns algbw into busbw."""
    return bus_factor(str(point.case.get("executed")), point.case.get("ranks"))


def points_by_name(part: Part) -> dict[str, list[BenchPoint]]:
    """Collectives, and messages by direction, as they were measured."""
    found: dict[str, list[BenchPoint]] = {}
    for point in measured(part):
        case = point.case
        if "executed" in case:
            found.setdefault(case["op"], []).append(point)
        elif case.get("op") == MESSAGE:
            found.setdefault(f"{MESSAGE}, {case.get('way')}", []).append(point)
    return found


def fits_of(part: Part) -> dict[str, Fit]:
    """A fit for each operation measured at enough sizes; messages over all pairs of ranks together."""
    found = {}
    for name, points in points_by_name(part).items():
        sizes = [point.case["size_bytes"] for point in points]
        made = fit(sizes, [spread(point.samples).median for point in points])
        if made is not None:
            found[name] = made
    return found


def collectives(part: Part) -> list[Block]:
    """Curves, fits and the table."""
    rows = [
        _row(name, point)
        for name, points in points_by_name(part).items()
        for point in sorted(points, key=lambda point: point.case["size_bytes"])
        if "executed" in point.case
    ]
    return [*curves(part), *_fits(part), Table(HEAD, rows, 5, most=MOST_ROWS)] if rows else []


def _row(name: str, point: BenchPoint) -> Sequence[Cell]:
    executed = point.case["executed"]
    shown = name if executed == point.case["op"] else f"{name} (executed: {executed})"
    found = spread(point.samples)
    times = (Quantity(value * 1e6, "", 1) for value in (found.median, found.p95))
    return shown, Quantity(point.case["size_bytes"], "", 0), *times, gb(algbw(point)), gb(busbw(point))


def gb(value: float | None) -> Quantity:
    """A cell in GB/s with three decimals."""
    return Quantity(value, "", 3)


def curves(part: Part) -> list[Block]:
    """Time and bus bandwidth by size, for every operation."""
    times, loads, sizes = list[Line](), list[Line](), list[float]()
    for name, points in points_by_name(part).items():
        if "executed" not in points[0].case:
            continue
        x = [float(point.case["size_bytes"]) for point in points]
        sizes += x
        colour, style = COLOURS[len(times) % len(COLOURS)], "line" if len(times) < len(COLOURS) else "dashed"
        y = [spread(point.samples).median * 1e6 for point in points]
        times.append(Line(name, x, y, colour, style))
        if (known := [busbw(point) for point in points])[0] is not None:
            loads.append(Line(name, x, known, colour, style))
    panels = [Panel("Time of a collective", "us", times)] if times else []
    panels += [Panel("Bus bandwidth of a collective", "GB/s", loads)] if loads else []
    if not panels:
        return []
    return [
        Series("collectives", "Collectives by size", panels, "bytes", (min(sizes), max(sizes)), is_log=True)
    ]


def _fits(part: Part) -> list[Block]:
    fits = fits_of(part)
    if not fits:
        return []
    rows: list[Sequence[Cell]] = [
        (
            name,
            Quantity(one.alpha_s * 1e6, "", 1),
            gb(one.beta_bytes_per_s / GB),
            Quantity(one.r2, "", 3),
            Quantity(one.points, "", 0),
        )
        for name, one in fits.items()
    ]
    notes = [None if one.r2 >= GOOD_FIT else "no straight line: read the curve" for one in fits.values()]
    head = ("time = alpha + size / beta", "alpha, us", "beta, GB/s", "r2", "points")
    return [Table(head, rows, figures=4, notes=notes)]


MIN_SIZES = 3  # a line goes through any two points


@dataclass(frozen=True)
class Fit:
    """A line through times by size.

    Attributes:
        alpha_s: what an empty message would take: this is what decoding feels.
        beta_bytes_per_s: what each further byte goes at: this is what training feels.
        r2: how much of the spread the line explains, each point weighted as in the fit; 1 is all.
        points: sizes.
    """

    alpha_s: float
    beta_bytes_per_s: float
    r2: float
    points: int


def fit(sizes: Sequence[float], times: Sequence[float]) -> Fit | None:
    """Fits a line by least squares of relative errors: each point has weight 1/t, so that large messages do
    not dominate. None with fewer than `MIN_SIZES` sizes, or if times do not grow with the size.
    """
    if len(set(sizes)) < MIN_SIZES or min(times) <= 0:
        return None
    weights = [1 / (time * time) for time in times]
    found = least_squares([(1.0, size) for size in sizes], times, weights)
    if found is None or found[1] <= 0:
        return None
    alpha, slope = found
    time_mean = sum(w * time for w, time in zip(weights, times, strict=True)) / sum(weights)
    left = sum(
        w * (time - alpha - slope * size) ** 2 for w, size, time in zip(weights, sizes, times, strict=True)
    )
    whole = sum(w * (time - time_mean) ** 2 for w, time in zip(weights, times, strict=True))
    return Fit(alpha, 1 / slope, 1 - left / whole, len(sizes))
