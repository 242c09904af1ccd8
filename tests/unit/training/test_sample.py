"""A long run's steps in bounded memory: whole stretches stay, the same ones in every run."""

from __future__ import annotations

from flagscale_perf.training.sample import Sample, Step


def sample_of(iterations: range) -> Sample:
    sample = Sample(limit=8, stretch=4)
    for iteration in iterations:
        sample.add(Step(iteration, 1, 1, 1, None, None))
    return sample


def test_up_to_the_limit_all_stay_then_every_second_stretch_then_every_fourth() -> None:
    assert list(sample_of(range(8)).steps) == list(range(8))
    halved = sample_of(range(9))
    assert (list(halved.steps), halved.thinned) == ([0, 1, 2, 3, 8], 4)
    quartered = sample_of(range(20))
    assert (list(quartered.steps), quartered.thinned) == ([0, 1, 2, 3, 16, 17, 18, 19], 12)
    assert [quartered.keeps(iteration) for iteration in (16, 20, 32)] == [True, False, True]


def test_steps_before_one_are_dropped_and_counted() -> None:
    sample = sample_of(range(8))
    assert (sample.drop_before(3), list(sample.steps)) == (3, [3, 4, 5, 6, 7])
