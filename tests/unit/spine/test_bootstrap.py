"""The bootstrap remembers as much of neighbouring steps as they share, and spreads as real medians do."""

import random

import pytest

from flagscale_perf.spine import bootstrap
from flagscale_perf.spine.averages import deviation, mean, median


def test_steps_that_alternate_or_never_vary_remember_nothing() -> None:
    assert bootstrap.memory_of([1, 2] * 20) == 1
    assert bootstrap.memory_of([1, 2] * 20 + [1]) == 1  # the median is one of the two values
    assert bootstrap.memory_of([5] * 40) == 1


def test_memory_of_steps_that_come_in_runs_of_four() -> None:
    # Signs + + + + - - - - ...: lag 1 has 30 pairs alike and 9 not, lag 2 has 20 and 18; the next two lags
    # are below 0 together.
    assert bootstrap.memory_of(([2] * 4 + [1] * 4) * 5) == pytest.approx(1 + 2 * (21 + 2) / 40)


def test_blocks_grow_with_the_memory_but_four_always_fit() -> None:
    assert bootstrap.block_length([1, 2] * 32) == 4  # the cube root of 64
    assert bootstrap.block_length([1] * 32 + [2] * 32) == 16


def test_a_draw_takes_whole_blocks_and_goes_on_at_the_front() -> None:
    for draw in bootstrap.draws(10, 4, seed=1):
        picked = draw(range(10))
        blocks = picked[:4], picked[4:8], picked[8:]
        assert len(picked) == 10
        assert all(block == tuple((block[0] + place) % 10 for place in range(len(block))) for block in blocks)


def test_the_same_seed_gives_the_same_draws() -> None:
    def drawn(seed: int) -> list[tuple[float, ...]]:
        return [draw(range(50)) for draw in bootstrap.draws(50, 5, seed)]

    assert drawn(3) == drawn(3) != drawn(4)


def test_the_spread_of_drawn_medians_is_that_of_real_ones() -> None:
    def run(seed: int) -> list[float]:
        chance = random.Random(seed)
        state, values = 0.0, []
        for _ in range(400):
            state = 0.6 * state + chance.gauss(0, 1)
            values.append(state)
        return values

    true = deviation([median(run(seed)) for seed in range(300)])
    found = []
    for seed in range(20):
        values = run(1000 + seed)
        picks = bootstrap.draws(400, bootstrap.block_length(values), seed)
        found.append(deviation([median(draw(values)) for draw in picks]))
    assert mean(found) == pytest.approx(true, rel=0.15)
