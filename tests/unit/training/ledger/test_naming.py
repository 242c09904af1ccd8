"""Who is named, and after how many steps; ranks that are only uneven are not."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable

import pytest

from flagscale_perf.training.ledger.book import Lateness, book_of, lateness_of
from flagscale_perf.training.ledger.naming import FEWEST, Late, late_units, own_lateness, steady_units
from tests.schedules import FORWARD, MS, Extra, noise, recorded


def found(name, ranks: int, steps: int, extra: Extra) -> list[Late]:
    book = book_of(recorded(ranks, range(2, 2 + steps), extra))
    assert book is not None
    return name(book, lateness_of(book), statistics.median(step.dur_ns for step in book.steps))


def late_by(share: float, seed: int) -> Extra:
    uneven = noise(0.02, seed)
    return lambda rank, step, phase: (
        uneven(rank, step, phase) + round(share * 107 * MS) * ((rank, phase) == (1, FORWARD))
    )


@pytest.mark.parametrize("name", [late_units, steady_units])
def test_a_tenth_of_a_step_is_named_in_the_fewest_steps(name) -> None:
    (late,) = found(name, 4, FEWEST.count, late_by(0.1, 1))
    assert (late.unit, late.phase, late.pattern) == (1, FORWARD, "constant")
    assert found(name, 4, FEWEST.count - 1, late_by(0.1, 1)) == []


def test_less_than_a_fiftieth_is_not_worth_a_name() -> None:
    assert found(late_units, 4, 100, late_by(0.01, 2)) == []
    assert len(found(late_units, 4, 100, late_by(0.03, 2))) == 1


@pytest.mark.parametrize("seed", range(30))
def test_hiccups_that_hit_everybody_name_nobody(seed: int) -> None:
    slow, uneven = noise(0.5, seed + 100), noise(0.02, seed)

    def hiccups(rank: int, step: int, phase: int) -> int:
        return uneven(rank, step, phase) + abs(slow(rank, step, phase)) * ((7 * step + 3 * rank) % 10 == 0)

    assert found(late_units, 2 + seed % 4, 100, hiccups) == []


@pytest.mark.parametrize(
    ("beyond", "own"),
    [
        (lambda draw: draw.gauss(1000, 400), 840),  # as much above the usual as below: chance, which stays
        (lambda draw: draw.choice([800, 800, 800, 2000]), 1100),  # nothing below answers what some have above
        (lambda draw: draw.choice([0, 1200, 1200, 1200]), 900),  # in some steps it is not late
    ],
)
def test_chance_is_no_lateness_of_one_s_own(beyond: Callable[[random.Random], float], own: float) -> None:
    draw, late = random.Random(1), Late(1, FORWARD, "constant", range(2000), 1000)
    beyond_ns = {at: round(beyond(draw)) for at in late.at}
    found = own_lateness([late], Lateness({late.place: beyond_ns}, {}))[late.place]
    assert statistics.fmean(found.values()) == pytest.approx(own, rel=0.04)


def test_steps_that_stand_out_are_all_a_unit_s_own() -> None:
    steady, burst = Late(1, FORWARD, "constant", range(20), 10), Late(1, FORWARD, "bursts", [3, 4], 50)
    found = own_lateness([steady, burst], Lateness({steady.place: dict.fromkeys(range(20), 10)}, {}))
    assert found[steady.place].keys() == {*range(20)} - {3, 4}
