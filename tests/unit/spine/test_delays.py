"""Delays as a user writes them, and which step has which."""

from __future__ import annotations

from collections import Counter

import pytest

from flagscale_perf.spine.delays import Arm, Delays, Place
from flagscale_perf.spine.errors import PerfError

MS = 1_000_000


def test_places_sizes_and_rounds_in_words() -> None:
    delays = Delays.parse("1:decoder.layers.0, 0,2:a.b:aten::mm,3::aten::add,ms=10/2.5,rounds=4")
    assert delays == Delays(
        (
            Place(1, "decoder.layers.0"), Place(0), Place(2, "a.b", "aten::mm"), Place(3, "", "aten::add"),
        ),
        (2_500_000, 10 * MS),
        4,
    )  # fmt: skip
    assert str(delays) == "1:decoder.layers.0,0,2:a.b:aten::mm,3::aten::add,ms=2.5/10,rounds=4"
    assert Delays.parse(str(delays)) == delays
    assert Delays.parse("1") == Delays((Place(1),), (5 * MS, 10 * MS, 20 * MS), 10)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is not a place"),
        ("ms=5", "must name 1 to 16 places"),
        ("1:a,1:a", "each once"),
        ("x:a", "'x:a' is not a place"),
        ("1:a,size=5", "'size=5' is not a place"),
        ("1:a,ms=0", "ms=0 is not"),
        ("1:a,ms=fast", "ms=fast is not"),
        ("1:a,ms=20000", "up to 10000 ms"),
        ("1:a,rounds=0", "rounds=0 is not a whole number from 1 to 1000"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, said: str) -> None:
    with pytest.raises(PerfError, match=said) as refused:
        Delays.parse(text)
    assert "write for example 1:decoder.layers.0,0:decoder.layers.2,ms=5/10/20" in str(refused.value)


def test_each_round_has_each_delay_once_and_two_steps_without_in_an_order_that_all_ranks_share() -> None:
    text = "1:a,0,ms=5/10,rounds=6"
    delays = Delays.parse(text)
    assert delays.length == 6 * 6
    order = [delays.arm(position) for position in range(delays.length)]
    places = (Place(1, "a"), Place(0))
    arms = {Arm(), Arm(is_second=True), *(Arm(place, size * MS) for place in places for size in (5, 10))}
    rounds = [tuple(order[6 * number : 6 * number + 6]) for number in range(6)]
    assert [Counter(each) for each in rounds] == [Counter(arms)] * 6
    assert len(set(rounds)) == 6
    assert order == [Delays.parse(text).arm(position) for position in range(delays.length)]
