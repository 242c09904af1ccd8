"""The report of a bandwidth test: what links and memory carry, and how it grows with the size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flagscale_perf.analysis.blocks import (
    Block,
    Cell,
    HeatMap,
    Layer,
    Note,
    Quantity,
    Section,
    Table,
)
from flagscale_perf.analysis.verdicts import Verdict, verdict_of
from flagscale_perf.bench.analysis.collectives import (
    MESSAGE,
    MOST_ROWS,
    ONE_WAY,
    algbw,
    busbw,
    collectives,
    curves,
    factor_of,
    fits_of,
    gb,
    measured,
)
from flagscale_perf.bench.analysis.shown import Shown
from flagscale_perf.bench.analysis.source import Part, Spread, spread
from flagscale_perf.bench.records import BenchPoint

BOTH_WAYS = "both ways"
PEAK = "ceiling"  # figures for what the hardware can do, by its driver
OUR_LIMITS = (0.85, 0.6)
OURS = "; of its own ceiling (85 % and 60 % are our limits)"


def _sections(part: Part) -> Sequence[Section]:
    return [
        Section("collectives", "Collectives", "Collectives", collectives(part)),
        Section("messages", "Messages", "Messages between two ranks", _messages(part)),
        Section("memory", "Memory", "Memory of each rank", _memory(part)),
        Section("links", "Links", "What the driver says of the links", _links(part)),
    ]


def _messages(part: Part) -> list[Block]:
    points = measured(part, op=MESSAGE)
    if not points:
        return []
    rows: list[Sequence[Cell]] = [
        (f"{point.case['src']} to {point.case['dst']}", str(point.case.get("way")), *_figures(point, 1e6, 1))
        for point in points
    ]
    head = ("ranks", "way", "bytes", "median, us", "min, us", "p95, us", "GB/s, each way")
    said = "Both ways at once: each rank sends and receives, and the figure is for one direction."
    return [*_matrix(points), Table(head, rows, 5, most=MOST_ROWS), Note(said)]


def _figures(point: BenchPoint, per_s: float, decimals: int) -> tuple[Cell, ...]:
    """Size, times in units of which a second has so many, and speed."""
    found = spread(point.samples)
    times = (Quantity(value * per_s, "", decimals) for value in (found.median, found.low, found.p95))
    return Quantity(point.case["size_bytes"], "", 0), *times, gb(algbw(point))


def _matrix(points: Sequence[BenchPoint]) -> list[Block]:
    """GB/s from each rank to each other one, for the largest messages."""
    ranks = sorted({int(point.case[end]) for point in points for end in ("src", "dst")})
    largest, points = _largest(points)
    layers = []
    for way in (ONE_WAY, BOTH_WAYS):
        speeds = {
            (int(point.case["src"]), int(point.case["dst"])): algbw(point)
            for point in points
            if point.case.get("way") == way
        }
        if way == BOTH_WAYS:
            speeds |= {(target, source): speed for (source, target), speed in speeds.items()}
        layers.append(
            Layer(f"messages {way}", "GB/s", [[speeds.get((one, other)) for other in ranks] for one in ranks])
        )
    names = [f"rank {rank}" for rank in ranks]
    edges = [float(place) for place in range(len(ranks) + 1)]
    title = f"GB/s of messages of {largest:,} bytes, from the rank of a row to that of a column"
    return [HeatMap("messages", title, "from", names, "to", None, edges, layers, columns=names)]


def _memory(part: Part) -> list[Block]:
    points = _local(part)
    rows: list[Sequence[Cell]] = [
        (str(point.case["op"]), f"rank {point.case['rank']}", *_figures(point, 1e3, 2)) for point in points
    ]
    head = ("what", "", "bytes", "median, ms", "min, ms", "p95, ms", "GB/s moved")
    said = (
        "A copy moves each byte twice (read and written), a triad a = b + s c three times; each rank in turn."
    )
    return [Table(head, rows, 5), Note(said)] if rows else []


def _largest(messages: Sequence[BenchPoint]) -> tuple[int, list[BenchPoint]]:
    """The size of the largest, and those of this size."""
    size = max((point.case["size_bytes"] for point in messages), default=0)
    return size, [point for point in messages if point.case["size_bytes"] == size]


def _local(part: Part, **case: Any) -> list[BenchPoint]:
    """The points of what each rank moved by itself."""
    return [point for point in measured(part, **case) if "moved_bytes" in point.case]


def _links(part: Part) -> list[Block]:
    """The topology as the driver reports it, and the ceilings that follow from it."""
    rows: list[Sequence[Cell]] = [
        (str(one.case.get("of")), f"GPU {one.case.get('gpu')}", Quantity(one.value, "", 1), one.why)
        for one in part.values(PEAK)
        if one.value is not None
    ]
    blocks: list[Block] = [Table(("ceiling", "", "GB/s", "from"), rows)] if rows else []
    topology = part.settings.get("topology")
    found = topology.get("pairs") if isinstance(topology, dict) else None
    pairs: list[Sequence[Cell]] = [
        (f"GPU {one.get('one')}, GPU {one.get('other')}", str(one.get("link")), str(one.get("peer_access")))
        for one in (found if isinstance(found, list) else [])
        if isinstance(one, dict)
    ]
    if pairs:
        blocks.append(Table(("cards", "linked by", "peer access"), pairs))
    return blocks


def _drawn(part: Part) -> Sequence[Block]:
    points = measured(part, op=MESSAGE)
    return [*curves(part), *(_matrix(points) if points else [])]


def _content(part: Part) -> Mapping[str, Any]:
    return {
        "bandwidths": [
            dict(point.case)
            | {"median_s": spread(point.samples).median, "bus_factor": factor_of(point)}
            | {"algbw_GBps": algbw(point), "busbw_GBps": busbw(point)}
            for point in measured(part)
        ],
        "fits": {name: asdict(one) for name, one in fits_of(part).items()},
        "slow": [asdict(one) for one in slow_parts(part)],
    }


def _verdicts(part: Part) -> Sequence[Verdict]:
    links = [algbw(point) or 0.0 for point in measured(part, op=MESSAGE, way=ONE_WAY)]
    copies = [algbw(point) or 0.0 for point in measured(part, op="copy")]
    link, copy = max(links, default=None), max(copies, default=None)
    of_links = "the fastest message, one way" if links else "no message between two ranks was measured"
    of_copies = (
        "a copy, read and written; the requirement has one limit" if copies else "no copy was measured"
    )
    return [
        verdict_of("P2P", link, "GB/s", (200.0, 100.0), of_links),
        _share(part, "NVLink utilisation", link, "nvlink", (0.5, 0.3)),
        verdict_of("memory bandwidth", copy, "GB/s", (1500.0, 1500.0), of_copies),
        _share(part, "memory bandwidth, share of its peak", copy, "memory", OUR_LIMITS),
    ]


def _share(part: Part, name: str, value: float | None, of: str, limits: tuple[float, float]) -> Verdict:
    peaks = part.values(PEAK, of=of)
    known = [one.value for one in peaks if one.value]
    if not known or value is None:
        why = (
            next((one.why for one in peaks), "the driver was not asked")
            if value is not None
            else "not measured"
        )
        return verdict_of(name, None, "share", limits, why)
    ours = OURS if limits == OUR_LIMITS else ""
    return verdict_of(name, value / min(known), "share", limits, f"of {min(known):.0f} GB/s{ours}")


def _remarks(part: Part) -> Sequence[Note]:
    said = part.settings.get("said")
    return [
        *(Note(one.text, "warn" if one.is_topology else "bad") for one in slow_parts(part)),
        *(Note(str(text), "warn") for text in (said if isinstance(said, list) else ())),
    ]


LIMIT = 1.5  # times as long as the fastest that it is compared with, repetitions not overlapping
MANY = 4  # where one link in so many is slow, they are of different kinds
MIN_RANKS = 3  # two ranks have one link: which of the three is slow cannot be told
Link = tuple[int, int]


@dataclass(frozen=True)
class Slow:
    """A slow rank or link.

    Attributes:
        ranks: one rank, or the two of a link.
        times: how many times as long it takes as what it is compared with.
        text: what was found, one sentence.
        is_topology: links of several kinds, as inside and between nodes, where nothing need be wrong.
    """

    ranks: tuple[int, ...]
    times: float
    text: str
    is_topology: bool = False


def slow_parts(part: Part) -> list[Slow]:
    """The slowest first. A link of a slow rank is named, too, where the rank's other links are faster. Where
    links are of several kinds, no rank is named by its links, and a link only if it is slower than the rest.
    """
    links = _link_times(part)
    found, ranks = list(_slow_links(links)), {one.ranks[0]: one for one in _by_copies(part)}
    if len(found) <= max(1, len(links) // MANY):
        ranks = {one.ranks[0]: one for one in _by_links(links)} | ranks
    else:
        worst = max(found, key=lambda one: one.times)
        text = (
            f"links are of different kinds: {len(found)} of {len(links)} take more than {LIMIT:g} times as"
            f" long as other links of their ranks; the worst: {worst.text}"
        )
        own, *others = (
            links[one.ranks[0], one.ranks[-1]] for one in sorted(found, key=lambda one: -one.times)
        )
        is_alone = all(_is_slower(own, each) for each in others)
        found = [Slow(worst.ranks, worst.times, text, is_topology=True), *([worst] if is_alone else [])]
    return sorted([*ranks.values(), *found], key=lambda one: -one.times)


def _link_times(part: Part) -> dict[Link, Spread]:
    """The slower direction between each two ranks, with the largest messages."""
    _, points = _largest(measured(part, op=MESSAGE, way=ONE_WAY))
    found: dict[Link, Spread] = {}
    for point in points:
        one, other = sorted((int(point.case["src"]), int(point.case["dst"])))
        own = spread(point.samples)
        found[one, other] = max(found.get((one, other), own), own)
    return found


def _by_links(links: Mapping[Link, Spread]) -> Iterable[Slow]:
    """A rank whose every link is slower than the fastest link without it."""
    ranks = {rank for link in links for rank in link}
    if len(ranks) < MIN_RANKS:
        return
    for rank in sorted(ranks):
        own = min(one for link, one in links.items() if rank in link)
        other = min((one for link, one in links.items() if rank not in link), default=None)
        if other is not None and _is_slower(own, other):
            times = own.median / other.median
            yield Slow(
                (rank,),
                times,
                f"rank {rank} is slow: its fastest link takes {times:.1f} times as"
                " long as the fastest one between other ranks",
            )


def _slow_links(links: Mapping[Link, Spread]) -> Iterable[Slow]:
    for link, own in links.items():
        others = [
            min((one for other, one in links.items() if rank in other and other != link), default=None)
            for rank in link
        ]
        known = [one for one in others if one is not None]
        if len(known) == len(link) and all(_is_slower(own, one) for one in known):
            times = own.median / max(known).median
            yield Slow(
                link,
                times,
                f"the link between rank {link[0]} and rank {link[1]} takes {times:.1f}"
                " times as long as other links of both",
            )


def _by_copies(part: Part) -> Iterable[Slow]:
    """Ranks slow in both copy and triad: one alone may have met other work, as ranks take turns."""
    copies, triads = _alone(part, "copy"), _alone(part, "triad")
    for rank, own in copies.items():
        other = min((one for each, one in copies.items() if each != rank), default=None)
        triad = min((one for each, one in triads.items() if each != rank), default=None)
        if other is None or triad is None or rank not in triads:
            continue
        if _is_slower(own, other) and _is_slower(triads[rank], triad):
            times = own.median / other.median
            yield Slow(
                (rank,),
                times,
                f"rank {rank} is slow: a copy in its own memory takes {times:.1f}"
                " times as long as on the fastest rank",
            )


def _alone(part: Part, op: str) -> dict[int, Spread]:
    return {int(point.case["rank"]): spread(point.samples) for point in _local(part, op=op)}


def _is_slower(own: Spread, other: Spread) -> bool:
    return own.median > LIMIT * other.median and own.low > other.p95


SHOWN = Shown("bandwidth", "bandwidth_test", _sections, _drawn, _content, _remarks, _verdicts)
