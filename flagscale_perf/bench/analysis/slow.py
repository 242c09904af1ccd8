"""Which link or which rank is slow, by messages between every two of them and by what each does alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flagscale_perf.bench.analysis.points import MESSAGE, measured
from flagscale_perf.bench.analysis.source import Part, Spread, spread

LIMIT = 1.5  # times as long as the fastest that it is compared with, repetitions not overlapping
MANY = 4  # where one link in so many is slow, they are of different kinds
MIN_RANKS = 3  # two ranks have one link: nobody can tell which of the three is slow
Link = tuple[int, int]


@dataclass(frozen=True)
class Slow:
    """What is slow.

    Attributes:
        ranks: one rank, or the two of a link.
        times: as long as what it is compared with.
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
    links = _links(part)
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


def _links(part: Part) -> dict[Link, Spread]:
    """Of each two ranks the slower way, with the largest messages."""
    points = measured(part, op=MESSAGE, way="one way")
    largest = max((point.case["size_bytes"] for point in points), default=0)
    found: dict[Link, Spread] = {}
    for point in points:
        if point.case["size_bytes"] == largest:
            ends = sorted((int(point.case["src"]), int(point.case["dst"])))
            link, own = (ends[0], ends[1]), spread(point.samples)
            found[link] = max(found.get(link, own), own)
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
    """A link that is slower than another one of each of its two ranks."""
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
    """A rank whose own memory is slow, by copy and triad: the ranks have their turns one after another, and
    one of these alone may have met other work.
    """
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
    points = [point for point in measured(part, op=op) if "moved_bytes" in point.case]
    return {int(point.case["rank"]): spread(point.samples) for point in points}


def _is_slower(own: Spread, other: Spread) -> bool:
    return own.median > LIMIT * other.median and own.low > other.p95
