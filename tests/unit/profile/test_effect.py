"""Slopes, by numbers worked out by hand."""

from __future__ import annotations

from flagscale_perf.profile.effect import Effect, effect_of, ranked


def pairs(*gains: int) -> list[tuple[bool, int, int]]:
    """Steps of 1000, delayed ones by 100 and longer by these; in every second pair the delayed one first."""
    steps = []
    for number, gain in enumerate(gains):
        pair = [(True, 100, 1000 + gain), (False, 0, 1000)]
        steps += pair if number % 2 else pair[::-1]
    return steps


def test_what_is_felt_whole_has_slope_1_and_what_is_hidden_slope_0() -> None:
    assert effect_of(pairs(100, 100, 100, 100, 100)) == Effect(5, 100.0, 1.0, 1.0, 1.0)
    assert effect_of(pairs(0, 0, 0, 0, 0)) == Effect(5, 100.0, 0.0, 0.0, 0.0)


def test_the_interval_holds_the_slope_and_not_what_one_odd_pair_says() -> None:
    found = effect_of(pairs(50, 48, 52, 50, 49, 51, 50, 50, 50, 900))
    assert found is not None
    assert (found.pairs, found.slope) == (10, 0.5)
    assert 0.48 <= found.low <= 0.5 <= found.high <= 0.52


def test_too_few_pairs_and_steps_that_planted_nothing_say_nothing() -> None:
    assert effect_of(pairs(100, 100, 100, 100)) is None
    assert effect_of([(is_delayed, 0, took) for is_delayed, _, took in pairs(1, 2, 3, 4, 5)]) is None


def test_the_place_that_is_felt_most_for_sure_comes_first() -> None:
    sure, doubtful = Effect(5, 100.0, 0.8, 0.7, 0.9), Effect(5, 100.0, 1.0, 0.1, 1.9)
    assert ranked({"a": doubtful, "b": sure}) == [("b", sure), ("a", doubtful)]
