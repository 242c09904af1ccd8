"""A profile in pictures."""

from __future__ import annotations

from collections import defaultdict
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
from flagscale_perf.profile.analysis.waits import Waits
from flagscale_perf.spine.clock import NS_PER_MS

Maker = Callable[[ProfileReport, PhaseSums], Sequence[Block]]
Mask = Callable[[Cell], bool] | None
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
LAYER_ITSELF = "(layer)"
MORE = ("sky", "green", "orange", "yellow", "grey", "faint")
MOST_OPERATORS, MOST_RANKS, MOST_RANKS_DRAWN, MOST_PLACES = 20, 8, 256, 96
RANK = "rank"  # axis of the heat map of layers against ranks
WAITS = (
    ("waiting", "exposed_waiting_ns", "red"),
    ("transfer", "exposed_transfer_ns", "blue"),
    ("hidden by other work", "hidden_ns", "faint"),
)


def books(found: ProfileReport, sums: PhaseSums) -> list[Block]:
    """A bar per rank of what a step is made of, all to one scale."""
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
    """Layers against ranks, against kinds of work, and against the modules in them."""
    places = sums.places[:MOST_PLACES]
    names = [place.name for place in places]
    if not names:
        return []
    maps: list[Block] = []
    if 1 < len(sums.books) <= MOST_RANKS_DRAWN:
        # a layer that is slow on one rank alone looks like any other in a mean over ranks
        titles = [sums.titles[rank] for rank in sums.books]
        maps.append(_map(sums, ("ranks", RANK), names, titles, lambda cell: sums.titles[cell.rank]))
    maps.append(_map(sums, ("heat", "kind of work"), names, sums.kinds, lambda cell: cell.kind))
    parts = dict.fromkeys(_part(cell) for cell in sums.cells if cell.place.number is not None)
    numbered = [place.name for place in places if place.number is not None]
    if len(parts) > 1 and numbered:
        maps.append(_map(sums, ("modules", "module"), numbered, [*parts][:MOST_OPERATORS], _part))
    return maps


def _part(cell: Cell) -> str:
    return cell.part or LAYER_ITSELF


def _map(
    sums: PhaseSums,
    named: tuple[str, str],
    rows: Sequence[str],
    columns: Sequence[str],
    name: Callable[[Cell], str],
) -> HeatMap:
    """`named`: its key, and its axis; `name`: the column of a cell."""
    key, axis = named

    def grid(chosen: Mask) -> list[list[float | None]]:
        ranks = {cell.rank for cell in sums.cells if chosen is None or chosen(cell)}
        is_of_a_rank = axis == RANK or (chosen is not None and len(ranks) == 1)
        scale, add = (len(sums.books), sums.by) if is_of_a_rank else (1, sums.by_place)
        amounts = add(lambda cell: (cell.place.name, name(cell)), chosen)
        return [
            [
                None if (one := amounts.get((row, column))) is None else scale * one.worked_ns / NS_PER_MS
                for column in columns
            ]
            for row in rows
        ]

    return HeatMap(
        key=f"{key}-{sums.phase}",
        title=f"Layers by {axis}",
        row_name="layer",
        rows=rows,
        axis=axis,
        span=None,
        edges=list(range(len(columns) + 1)),
        columns=columns,
        layers=[Layer(label, "ms a step", grid(mask)) for label, mask in _masks(sums, axis != RANK)],
    )


def _masks(sums: PhaseSums, by_rank: bool) -> list[tuple[str, Mask]]:
    """The whole step, each part of it and each rank."""
    made: list[tuple[str, Mask]] = [(f"whole {sums.phase} step", None)]
    if len(sums.parts) > 1:
        made += [(part, _of_phase(part)) for part in sums.parts]
    if by_rank and len(sums.books) > 1:
        made += [(sums.titles[rank], _of_rank(rank)) for rank in [*sums.books][:MOST_RANKS]]
    return made


def _of_phase(phase: str) -> Callable[[Cell], bool]:
    return lambda cell: cell.phase == phase


def _of_rank(rank: int) -> Callable[[Cell], bool]:
    return lambda cell: cell.rank == rank


def operators(found: ProfileReport, sums: PhaseSums) -> list[Block]:
    """Kinds of work and the longest operators, by the part of the step they run in."""
    titled = f"The {MOST_OPERATORS} longest operators"
    return [
        _bars("kinds", "Kinds of work", sums, lambda cell: cell.kind, len(sums.kinds)),
        _bars("operators", titled, sums, lambda cell: cell.op or cell.kind, MOST_OPERATORS),
    ]


def _bars(key: str, title: str, sums: PhaseSums, name: Callable[[Cell], str], most: int) -> Waterfall:
    amounts = {label: one.self_ns for label, one in sums.by(name).items() if one.self_ns > 0}
    by_part = sums.by(lambda cell: (name(cell), cell.phase))
    whole = sums.mean.total or 1.0
    lanes = []
    for label, self_ns in [*amounts.items()][:most]:
        own = {part: by_part[label, part].self_ns for part in sums.parts if (label, part) in by_part}
        stripes = [Stripe(part, ns / NS_PER_MS, None, colour_of(part)) for part, ns in own.items()]
        lanes.append(Lane(label, 0.0, stripes, (f"{100 * self_ns / whole:.1f} % of the step",)))
    return _waterfall(f"{key}-{sums.phase}", f"{title}, {sums.phase}", "ms a step", lanes)


def _waterfall(key: str, title: str, unit: str, lanes: Sequence[Lane]) -> Waterfall:
    longest = max((sum(part.value or 0.0 for part in lane.parts) for lane in lanes), default=0.0)
    return Waterfall(key, title, unit, lanes, 1.05 * longest or 1.0)


def colour_of(part: str) -> str:
    """Colour for a part of the step or a kind of work."""
    return PART_COLOURS.get(part) or COLOURS.get(part) or MORE[sum(map(ord, part)) % len(MORE)]


def roofline(found: ProfileReport, sums: PhaseSums) -> list[Block]:
    """Work as points below the roofs."""
    dots = [
        (point.kind, point.intensity, point.flop_per_s / 1e9, _words(point))
        for point in found.points[sums.phase]
        if point.intensity and point.flop_per_s
    ]
    if not dots:
        return []
    low, high = min(dot[1] for dot in dots) / 4, max(dot[1] for dot in dots) * 4
    lines = _roofs(found.roofs, low, high)
    for kind in dict.fromkeys(dot[0] for dot in dots):
        x, y, words = (
            list(column) for column in zip(*(dot[1:] for dot in dots if dot[0] == kind), strict=True)
        )
        lines.append(Line(kind, x, y, colour_of(kind), "dot", words))
    panel = Panel(f"Roofline, {sums.phase}", "GFLOP/s", lines)
    return [
        Series(f"roofline-{sums.phase}", "Roofline", [panel], "FLOP for each byte", (low, high), is_log=True)
    ]


def _roofs(measured: roofs.Roofs, low: float, high: float) -> list[Line]:
    best, copy = measured.best, measured.bytes_per_s
    if not best or not copy:
        return []
    axis = sorted({low, min(max(best / copy, low), high), high})
    return [Line("roofs", axis, [min(best, x * copy) / 1e9 for x in axis], "grey")]


def _words(point: roofs.Point) -> str:
    share = "" if point.roof_share is None else f", {100 * point.roof_share:.0f} % of the roof"
    speed = (point.flop_per_s or 0.0) / 1e9
    return f"{point.label}: {speed:.3g} GFLOP/s, {point.self_ns / NS_PER_MS:.3f} ms{share}"


def longest(found: ProfileReport, sums: PhaseSums) -> list[Block]:
    """The modules that take the longest, by kind of work."""
    amounts = sums.by_place(lambda cell: cell.module or cell.place.name)
    kinds = sums.by_place(lambda cell: (cell.module or cell.place.name, cell.kind))
    lanes = []
    for name in [name for name, one in amounts.items() if one.self_ns > 0][:MOST_OPERATORS]:
        own = {kind: kinds[name, kind].self_ns / NS_PER_MS for kind in sums.kinds if (name, kind) in kinds}
        # there are more kinds than colours that can be told apart
        named = [Stripe(kind, own.pop(kind), None, COLOURS[kind]) for kind in COLOURS if kind in own]
        rest = [Stripe(REST, sum(own.values()), None, "purple")] if own else []
        lanes.append(Lane(name, 0.0, [*named, *rest]))
    title = f"The {len(lanes)} longest modules, {sums.phase}"
    return [_waterfall(f"longest-{sums.phase}", title, "ms a step", lanes)] if lanes else []


def memory(found: ProfileReport) -> list[Block]:
    """A picture of what each module retains, and needs temporarily while it runs; inner ones below it."""
    lanes = []
    for one in memory_of(found.profile):
        retained = Stripe("retained", max(0.0, one.retained_bytes) / MB, None, "blue")
        transient = Stripe("transient", one.transient_bytes / MB, None, "orange")
        lanes.append(Lane(one.label, 0.0, [retained, transient]))
    return [_waterfall("memory", "Memory of the forward pass by module", "MB", lanes)] if lanes else []


def communication(found: ProfileReport) -> list[Block]:
    """A picture of the time of each rank's collectives and the speed of links; empty without collectives."""
    if not found.communication.operations:
        return []
    steps = max(1, max(len(rank.profiled) for rank in found.profile.ranks))
    ranks: dict[int, list[Waits]] = defaultdict(list)
    speeds: dict[str, float] = {}
    for one in found.communication.waits:
        ranks[one.rank].append(one)
        if one.busbw_gb_per_s:
            name = f"{one.label} {one.operation}"
            speeds[name] = max(speeds.get(name, 0.0), one.busbw_gb_per_s)
    lanes = []
    for rank, own in sorted(ranks.items()):
        sums = ((name, sum(getattr(one, part) for one in own), colour) for name, part, colour in WAITS)
        stripes = [Stripe(name, ns / steps / NS_PER_MS, None, colour) for name, ns, colour in sums]
        lanes.append(Lane(f"rank {rank}", 0.0, stripes))
    made: list[Block] = [_waterfall("waits", "Collectives by rank", "ms a step", lanes)]
    if speeds:
        bars = [
            Lane(name, 0.0, [Stripe("bus bandwidth", value, None, "blue")]) for name, value in speeds.items()
        ]
        made.append(_waterfall("bandwidth", "Bus bandwidth of the transfers", "GB/s", bars))
    return made
