"""Items in lanes: beside or inside one another, whatever comes."""

from __future__ import annotations

import random

import pytest

from flagscale_perf.analysis import lanes
from flagscale_perf.analysis.lanes import Laid, laid
from flagscale_perf.analysis.timeline import Counter, Drawn, Item, Part, Process, Track

PROCESS = Process("node0", 1, "s", "toy", "toy")
TRACK = Track(PROCESS, "row")


def item(name: str, begin_ns: int, end_ns: int, *parts: Part) -> Item:
    return Item(name, TRACK, begin_ns, end_ns, parts=parts)


def events(*items: Drawn) -> list[tuple[int, str, bool]]:
    """Place of the lane, name, and whether it is the end."""
    return [(one.lane.place, one.item.name, one.is_end) for one in laid(items) if isinstance(one, Laid)]


def test_what_lies_inside_is_opened_behind_and_closed_before() -> None:
    assert events(item("inner", 2, 5), item("outer", 0, 10), item("next", 10, 12)) == [
        (0, "outer", False),
        (0, "inner", False),
        (0, "inner", True),
        (0, "outer", True),
        (0, "next", False),
        (0, "next", True),
    ]


def test_what_overlaps_has_a_lane_of_its_own_with_its_parts() -> None:
    one, two = item("one", 0, 10, Part("a", 0, 6), Part("b", 6, 10)), item("two", 5, 15, Part("a", 5, 9))
    found = [(lane, name) for lane, name, is_end in events(one, two) if not is_end]
    assert found == [(0, "one"), (0, "a"), (1, "two"), (1, "a"), (0, "b")]


def test_what_takes_no_time_has_no_end_and_nothing_ends_before_it_begins() -> None:
    assert events(item("moment", 3, 3), item("wrong", 5, 4)) == [(0, "moment", False), (0, "wrong", False)]


def test_counters_go_through() -> None:
    counter = Counter("power", PROCESS, 1, 2.0)
    assert [*laid([counter])] == [counter]


@pytest.mark.parametrize("waiting", [4, 64, 4096])
@pytest.mark.parametrize("seed", range(5))
def test_lanes_nest_whatever_comes_however_late(
    seed: int, waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "WAITING", waiting)
    monkeypatch.setattr(lanes, "MOST_WAITING", 3 * waiting)
    chance = random.Random(seed)
    given = []
    for number in range(500):
        begin_ns = chance.randrange(2000)
        end_ns = begin_ns + chance.choice((0, 1, 5, 300))
        given.append(
            item(str(number), begin_ns, end_ns, Part(f"{number} part", begin_ns, (begin_ns + end_ns) // 2))
        )
    opened: dict[int, list[Item]] = {}
    at_ns: dict[int, int] = {}
    begun = 0
    for one in laid(given):
        assert isinstance(one, Laid)
        lane, inner = one.lane.number, opened.setdefault(one.lane.number, [])
        now_ns = one.item.end_ns if one.is_end else one.item.begin_ns
        assert now_ns >= at_ns.get(lane, 0)
        at_ns[lane] = now_ns
        if one.is_end:
            assert inner.pop() is one.item
            continue
        begun += 1
        assert not inner or one.item.end_ns <= inner[-1].end_ns
        if one.item.end_ns > one.item.begin_ns:
            inner.append(one.item)
    assert begun == 2 * len(given) and not any(opened.values())
