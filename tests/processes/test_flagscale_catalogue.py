"""Real runs with several planted causes, and without any: what is named is what was planted, with phase,
pattern and rank, its gain right to 20 %, and nothing else is. `benchmarks/bench_findings.py` has all of them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.processes.planted_runs import Outcome, Plant, is_near, runs, train

pytestmark = [pytest.mark.host, pytest.mark.alone]

CHOSEN = (1, 3, 14, 26)  # of the catalogue: two ranks without a plant, one rank, two ranks, a slow rank
BESIDE = 2  # runs that sleep most of the time


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[int, Outcome]:
    catalogue = runs()
    directories = {number: tmp_path_factory.mktemp(f"run{number}") for number in CHOSEN}
    with ThreadPoolExecutor(BESIDE) as pool:
        trained = pool.map(
            lambda number: train(catalogue[number][1], catalogue[number][0], directories[number]), CHOSEN
        )
        return dict(zip(CHOSEN, trained, strict=True))


@pytest.mark.parametrize("number", CHOSEN)
def test_what_was_planted_is_what_is_named(outcomes, number: int) -> None:
    plants: list[Plant] = runs()[number][1]
    outcome = outcomes[number]
    assert (outcome.missed, outcome.false) == ([], [])
    gains = {plant: outcome.gains[plant] for plant in plants}
    assert {plant: gain for plant, gain in gains.items() if not is_near(*gain)} == {}
