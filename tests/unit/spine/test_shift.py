"""Where a run changed within itself."""

from __future__ import annotations

import pytest

from flagscale_perf.spine.shift import Shift, shift_of, shifts_of
from tests.simulated import Process, simulate


def shift(times: list[float]) -> Shift | None:
    return shift_of(times, range(101, 101 + len(times)))


@pytest.mark.parametrize("place", [15, 30, 45])
def test_a_jump_is_found_at_its_step_with_what_lies_on_both_sides(place) -> None:
    times = [100.0 + number % 3 for number in range(60)]
    found = shift([*times[:place], *(time + 50 for time in times[place:])])
    assert found is not None
    assert (found.before, found.after) == (101, 151)
    assert abs(found.last_before - (100 + place)) <= 1


def test_runs_that_did_not_change_have_none() -> None:
    process = Process(memory=0.8, tail=0.1)
    runs = [[step.iteration_ns / 1e6 for step in simulate(seed, 60, process)] for seed in range(100)]
    assert sum(shift(times) is not None for times in runs) <= 3
    assert shift([100.0] * 60) is None
    assert shift([100.0] * 30 + [101.0] * 30) is None  # 1 % is not worth a line
    assert shift([100.0] * 4 + [200.0] * 5) is None


def test_the_size_of_a_change_and_its_place_are_intervals_that_hold_the_truth() -> None:
    held = [0, 0, 0]
    for seed in range(40):
        times = [step.iteration_ns / 1e6 for step in simulate(seed, 400, Process())]
        found = shift([time * (1.1 if number >= 250 else 1) for number, time in enumerate(times)])
        assert found is not None and abs(found.place - 250) <= 10
        held[0] += found.least <= 10.0 <= found.most
        held[1] += found.earliest <= 350 <= found.latest
        held[2] += found.most - found.least < 6
    assert min(held) >= 36


def test_a_change_in_the_last_steps_of_many_is_found() -> None:
    times = [100.0 + number * number % 7 for number in range(1000)]
    found = shift([*times[:988], *(time + 8 for time in times[988:])])
    assert found is not None and abs(found.place - 988) <= 2


def test_the_last_hundredth_is_found_though_the_steps_before_it_wander() -> None:
    process, places = Process(step_noise=0.003, tail=0.0), []
    for seed in (930_000, 930_002, 930_009, 930_012):  # ranks alone point elsewhere in all but the first
        usual, slow = simulate(seed, 1000, process), simulate(seed, 1000, process, other=0.04)
        found = shift([step.iteration_ns / 1e6 for step in [*usual[:990], *slow[990:]]])
        places.append(found and found.place)
    assert places == [990] * 4


def test_several_changes_are_found_each_between_its_neighbours() -> None:
    times = [100.0 + number * number % 7 for number in range(400)]
    steps = [time + 20 * (100 <= at < 250) + 10 * (at >= 330) for at, time in enumerate(times)]
    found = shifts_of(steps, range(400))
    assert [(round(one.before), round(one.after)) for one in found] == [(102, 122), (122, 102), (102, 112)]
    assert [one.place for one in found] == pytest.approx([100, 250, 330], abs=2)
    assert shifts_of(times, range(400)) == []
