"""Where a run changed within itself."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.compare.shift import Shift, shift_of
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
