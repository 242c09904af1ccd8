"""Where the start of a session ends: a catalogue of runs, most of them with a start that is known by
construction. A usual step takes 100 ms.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from flagscale_perf.training.records import Outcome
from flagscale_perf.training.settled import HORIZON, Settling, Start
from tests.fakes import MS, make_skipped_data, make_step


def start_of(times: Sequence[float]) -> Start:
    """Of a first step of 5 s and steps that take so many times 100 ms."""
    settling = Settling()
    settling.add(make_step(1, warmup=1, iteration_ns=5000 * MS))
    for number, time in enumerate(times, 2):
        settling.add(make_step(number, iteration_ns=round(time * 100 * MS)))
    return settling.result()


def noisy(times: Sequence[float], spread: float, seed: int = 1) -> list[float]:
    choice = random.Random(seed)
    return [time * math.exp(choice.gauss(0, spread)) for time in times]


def flat(count: int) -> list[float]:
    return [1.0] * count


@pytest.mark.parametrize(
    ("times", "steps"),
    [
        (flat(100), 0),
        (noisy(flat(600), 0.1), 0),
        (noisy(flat(100), 0.3), 0),
        ([10.0, *flat(200)], 1),
        ([3.0] * 9 + flat(91), 9),
        ([3.0] * 4 + [2.0] * 6 + flat(90), 10),
        ([1.3] * 30 + flat(570), 30),
        # The excess is below 5 % from the 38th step on: 2 exp(-37 / 10) = 0.049.
        ([1 + 2 * math.exp(-place / 10) for place in range(600)], 37),
        (flat(300) + [3.0] * 60 + flat(240), 0),  # a slow stretch in the middle
        (flat(5) + [3.0] * 60 + flat(535), 0),  # and an early one, behind usual steps
        ([3.0] * 9 + flat(200) + [3.0] * 9 + flat(200), 0),  # what comes again is no start
        ([3.0] * 9 + flat(200) + [100.0] + flat(200), 9),  # but a hang is no stretch
        ([1 + place / 600 for place in range(600)], 0),  # getting slower is no slow start
    ],
)
def test_the_start_is_as_long_as_it_was_made(times: Sequence[float], steps: int) -> None:
    found = start_of(times)
    assert (found.settled_iteration, found.steps, found.reason) == (2 + steps, steps, None)


def test_what_the_start_took() -> None:
    found = start_of([3.0] * 9 + flat(91))
    assert (found.dur_ns, found.excess_ns, found.usual_ns) == (2700 * MS, 1800 * MS, 100 * MS)


@pytest.mark.parametrize("seed", range(20))
def test_noise_moves_the_end_of_a_start_by_some_steps_only(seed: int) -> None:
    assert abs(start_of(noisy([3.0] * 9 + flat(191), 0.1, seed)).steps - 9) <= 4


def test_a_run_that_gets_faster_all_the_time_never_settles() -> None:
    found = start_of([2 - place / 600 for place in range(600)])
    assert (found.settled_iteration, found.steps, found.usual_ns) == (None, 0, None)
    assert found.reason == "the slow start takes more than half of the first 600 steps"


def test_few_steps_tell_nothing() -> None:
    assert start_of(flat(19)).reason == "19 steps after the first are too few to tell, 20 are needed"
    assert start_of(flat(20)).settled_iteration == 2


def test_a_run_that_has_not_settled_yet_settles_later() -> None:
    times = [3.0] * 15 + flat(100)
    assert start_of(times[:25]).settled_iteration is None
    assert start_of(times).settled_iteration == 17


def test_nothing_changes_behind_the_horizon() -> None:
    times = [2.0] * 40 + flat(HORIZON - 40)
    assert start_of(times + [0.5] * 10_000) == start_of(times)
    never = [2 - place / HORIZON for place in range(HORIZON)]
    assert start_of(never + flat(10_000)) == start_of(never)


def test_steps_are_counted_whatever_became_of_them_and_data_passed_over_is_not() -> None:
    settling = Settling()
    for number in range(1, 101):
        step = (
            make_step(number, outcome=int(Outcome.UPDATE_SKIPPED))
            if number % 2
            else make_skipped_data(number)
        )
        settling.add(step)
    assert settling.result().settled_iteration == 1
    assert settling.result().reason is None


@pytest.mark.parametrize("kind", ["normal", "heavy tails", "bursts", "drifting"])
def test_healthy_noise_seldom_loses_a_step(kind: str) -> None:
    """Of 50 runs each; a drift of 0.95 a step is a walk, so that some begin with a slow stretch indeed."""
    found = [start_of(_healthy(kind, random.Random(seed))) for seed in range(50)]
    assert sum(one.steps > 0 for one in found) <= (5 if kind == "drifting" else 2)


def _healthy(kind: str, choice: random.Random) -> list[float]:
    if kind == "normal":
        return [math.exp(choice.gauss(0, 0.1)) for _ in range(300)]
    if kind == "heavy tails":
        return [1 + (choice.paretovariate(1.5) - 1) * 0.05 for _ in range(300)]
    times = [math.exp(choice.gauss(0, 0.03)) for _ in range(300)]
    if kind == "bursts":
        for _ in range(8):
            begin = choice.randrange(300)
            for place in range(begin, min(300, begin + choice.randrange(1, 20))):
                times[place] *= 1.5
        return times
    level = 0.0
    for place in range(300):
        level = 0.95 * level + choice.gauss(0, 0.02)
        times[place] *= math.exp(level)
    return times
