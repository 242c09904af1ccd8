"""Growth of one column against the rest of the step."""

from __future__ import annotations

from flagscale_perf.training.growth import Growth, growth_of

STEPS = 320
REST = [100] * STEPS


def test_two_levels_are_these_with_their_first_step() -> None:
    column = [10] * 200 + [50] * 120
    assert growth_of("other", column, REST) == Growth("other", 10, 50, 40 * 120 / 320, 200)


def test_the_first_step_is_found_beside_uneven_ones() -> None:
    column = [10] * 200 + [50] * 120
    column[190], column[207] = 60, 5
    found = growth_of("other", column, REST)
    assert found is not None and found.since == 200


def test_a_line_has_both_its_ends() -> None:
    found = growth_of("other", list(range(STEPS)), REST)
    # the median of steps 0 to 19 is 9.5, of the last twenty 309.5; from 0 on 159.5 more in the mean
    assert found == Growth("other", 9.5, 309.5, 159.5, None)


def test_too_few_steps_say_nothing() -> None:
    assert growth_of("other", [10] * 24 + [50] * 23, [100] * 47) is None
    assert growth_of("other", [10] * 24 + [50] * 24, [100] * 48) is not None


def test_what_falls_does_not_grow() -> None:
    assert growth_of("other", list(range(STEPS, 0, -1)), REST) is None


def test_growth_in_proportion_to_the_rest_is_no_one_phases() -> None:
    assert growth_of("other", [10] * 160 + [20] * 160, [100] * 160 + [200] * 160) is None
