"""A profile in pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flagscale_perf.analysis.blocks import (
    Block,
    HeatMap,
    Lane,
    Layer,
    Line,
    Panel,
    Series,
    StackedBar,
    Stripe,
    Waterfall,
)
from flagscale_perf.profile.analysis import roofline as roofs
from flagscale_perf.profile.analysis.memory import MB, memory_of
from flagscale_perf.profile.analysis.operators import COLOURS
from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.profile.analysis.sums import Cell, PhaseSums
from flagscale_perf.spine.clock import NS_PER_MS

Maker = Callable[[ProfileReport, PhaseSums], Sequence[Block]]
PART_COLOURS = {
    "operators": "blue",
    "outside": "sky",
    "communication": "red",
    "host": "grey",
    "engine": "yellow",
    "residual": "faint",
    "forward": "blue",
    "backward": "orange",
    "recompute": "green",
    "optimizer": "sky",
    "other": "grey",
}
REST = "other work"
MORE = ("sky", "green", "orange", "yellow", "grey", "faint")
MOST_OPERATORS, MOST_RANKS, MOST_PLACES = 20, 8, 96


def books(found: ProfileReport, sums: PhaseSums) -> list[Block]:
    """One bar per rank, all to one scale."""
    longest = max(one.total for one in sums.books.values()) / NS_PER_MS
    several = len(sums.books) > 1
    bars: list[Block] = []
    for rank, one in [*sums.books.items()][:MOST_RANKS]:
        stripes = [
            Stripe(name, value / NS_PER_MS, value / one.total if one.total else None, colour_of(name))
            for name, value in one.parts.items()
        ]
        title = f"{sums.titles[rank]}, a {sums.phase} step"
        bars.append(StackedBar(title, "ms", stripes, longest if several else None, in_words=False))
    return bars


def layers(found: ProfileReport, sums: PhaseSums) -> list[Block]:
    """Layers against kinds of work, and layers against the modules in them."""
    places = sums.places[:MOST_PLACES]
    names = [place.name for place in places]
    if not names:
        return []
    kinds = list(sums.kinds)
    chosen: list[tuple[str, Callable[[Cell], bool] | None]] = [(f"whole {sums.phase} step", None)]
    if len(sums.parts) > 1:
        chosen += [(part, _of_phase(part)) for part in sums.parts]
    if len(sums.books) > 1:
        chosen += [(sums.titles[rank], _of_rank(rank)) for rank in [*sums.books][:MOST_RANKS]]
    maps: list[Block] = [
        _map(
            f"heat-{sums.phase}",
            "kind of work",
            names,
            kinds,
            [(label, _grid(sums, names, kinds, lambda cell: cell.kind, mask)) for label, mask in chosen],
        )
    ]
    parts = _parts(sums)
    numbered = [place.name for place in places if place.number is not None]
    if len(parts) > 1 and numbered:
        grids = [
            (label, _grid(sums, numbered, parts, lambda cell: cell.part or "(layer)", mask))
            for label, mask in chosen
        ]
        maps.append(_map(f"modules-{sums.phase}", "module", numbered, parts, grids))
    return maps


def _of_phase(phase: str) -> Callable[[Cell], bool]:
    return lambda cell: cell.phase == phase


def _of_rank(rank: int) -> Callable[[Cell], bool]:
    return lambda cell: cell.rank == rank


def _parts(sums: PhaseSums) -> list[str]:
    found = [cell.part or "(layer)" for cell in sums.cells if cell.place.number is not None]
    return list(dict.fromkeys(found))[:MOST_OPERATORS]


def _grid(
    sums: PhaseSums,
    rows: Sequence[str],
    columns: Sequence[str],
    key: Callable[[Cell], str],
    chosen: Callable[[Cell], bool] | None,
) -> list[list[float | None]]:
    ranks = {cell.rank for cell in sums.cells if chosen is None or chosen(cell)}
    scale = len(sums.books) / len(ranks) if chosen is not None and len(ranks) == 1 else 1.0
    add = sums.by if scale != 1.0 else sums.by_place
    amounts = add(lambda cell: (cell.place.name, key(cell)), chosen)
    return [
        [
            None if (one := amounts.get((row, column))) is None else scale * one.worked_ns / NS_PER_MS
            for column in columns
        ]
        for row in rows
    ]


def _map(
    key: str,
    axis: str,
    rows: Sequence[str],
    columns: Sequence[str],
    grids: Sequence[tuple[str, Sequence[Sequence[float | None]]]],
) -> HeatMap:
    return HeatMap(
        key=key,
        title=f"Layers by {axis}",
        row_name="layer",
        rows=rows,
        axis=axis,
        span=None,
        edges=list(range(len(columns) + 1)),
        columns=columns,
        layers=[Layer(label, "ms a step", values) for label, values in grids],
    )


def operators(found: ProfileReport, sums: PhaseSums) -> list[Block]:
    """Kinds of work and the longest operators, by the part of the step they run in."""
    return [
        _bars("kinds", "Kinds of work", sums, lambda cell: cell.kind, len(sums.kinds)),
        _bars(
            "operators",
            f"The {MOST_OPERATORS} longest operators",
            sums,
            lambda cell: cell.op or cell.kind,
            MOST_OPERATORS,
        ),
    ]


def _bars(key: str, title: str, sums: PhaseSums, name: Callable[[Cell], str], most: int) -> Waterfall:
    amounts = sums.by(name)
    by_part = sums.by(lambda cell: (name(cell), cell.phase))
    chosen = [label for label, one in amounts.items() if one.self_ns > 0][:most]
    whole = sums.mean.total or 1.0
    lanes = [
        Lane(
            label,
            0.0,
            [
                Stripe(part, by_part[label, part].self_ns / NS_PER_MS, None, colour_of(part))
                for part in sums.parts
                if (label, part) in by_part
            ],
            (f"{100 * amounts[label].self_ns / whole:.1f} % of the step",),
        )
        for label in chosen
    ]
    longest = max((amounts[label].self_ns for label in chosen), default=0.0) / NS_PER_MS
    return Waterfall(f"{key}-{sums.phase}", f"{title}, {sums.phase}", "ms a step", lanes, longest * 1.05)


def colour_of(part: str) -> str:
    """Colour for a part of the step or a kind of work."""
    return PART_COLOURS.get(part) or COLOURS.get(part) or MORE[sum(map(ord, part)) % len(MORE)]


def roofline(found: ProfileReport, sums: PhaseSums) -> list[Block]:
    """Work as points below the roofs."""
    points = roofs.drawn(found.points[sums.phase])
    if not points:
        return []
    intensities = [point.intensity or 0.0 for point in points]
    low, high = min(intensities) / 4, max(intensities) * 4
    lines = []
    best, copy = found.roofs.best, found.roofs.bytes_per_s
    if best and copy:
        ridge = best / copy
        axis = sorted({low, min(max(ridge, low), high), high})
        lines.append(Line("roofs", axis, [min(best, x * copy) / 1e9 for x in axis], "grey"))
    by_kind: dict[str, list[roofs.Point]] = {}
    for point in points:
        by_kind.setdefault(point.kind, []).append(point)
    for kind, own in by_kind.items():
        lines.append(
            Line(
                kind,
                [point.intensity or 0.0 for point in own],
                [(point.flop_per_s or 0.0) / 1e9 for point in own],
                colour_of(kind),
                "dot",
                [_words(point) for point in own],
            )
        )
    panel = Panel(f"Roofline, {sums.phase}", "GFLOP/s", lines)
    return [
        Series(f"roofline-{sums.phase}", "Roofline", [panel], "FLOP for each byte", (low, high), is_log=True)
    ]


def _words(point: roofs.Point) -> str:
    share = "" if point.roof_share is None else f", {100 * point.roof_share:.0f} % of the roof"
    speed = (point.flop_per_s or 0.0) / 1e9
    return f"{point.label}: {speed:.3g} GFLOP/s, {point.self_ns / NS_PER_MS:.3f} ms{share}"


def longest(found: ProfileReport, sums: PhaseSums) -> list[Block]:
    """The modules that take the longest, with the least time that the roofs allow them."""
    amounts = sums.by_place(lambda cell: cell.module or cell.place.name)
    kinds = sums.by_place(lambda cell: (cell.module or cell.place.name, cell.kind))
    chosen = [name for name, one in amounts.items() if one.self_ns > 0][:MOST_OPERATORS]
    lanes = []
    for name in chosen:
        own = {kind: kinds[name, kind].self_ns / NS_PER_MS for kind in sums.kinds if (name, kind) in kinds}
        # there are more kinds than colours that can be told apart
        named = [Stripe(kind, own.pop(kind), None, COLOURS[kind]) for kind in COLOURS if kind in own]
        rest = [Stripe(REST, sum(own.values()), None, "purple")] if own else []
        lanes.append(Lane(name, 0.0, [*named, *rest]))
    most = max((amounts[name].self_ns for name in chosen), default=0.0) / NS_PER_MS
    title = f"The {len(lanes)} longest modules, {sums.phase}"
    return (
        [Waterfall(f"longest-{sums.phase}", title, "ms a step", lanes, most * 1.05 or 1.0)] if lanes else []
    )


def memory(found: ProfileReport) -> list[Block]:
    """What each module retains, and what it needs temporarily while it runs; those in it below it."""
    made = memory_of(found.profile)
    if not made:
        return []
    lanes = [
        Lane(
            one.label,
            0.0,
            [
                Stripe("retained", max(0.0, one.retained_bytes) / MB, None, "blue"),
                Stripe("transient", one.transient_bytes / MB, None, "orange"),
            ],
        )
        for one in made
    ]
    longest = max(max(0.0, one.retained_bytes) + one.transient_bytes for one in made) / MB
    return [Waterfall("memory", "Memory of the forward pass by module", "MB", lanes, longest * 1.05 or 1.0)]
