"""Real runs with several planted causes, and without any: what is named is what was planted, with phase,
pattern and rank, its gain right to 20 %, and nothing else is. `benchmarks/bench_findings.py` has all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.processes.planted_runs import Outcome, Plant, is_near, runs, train

pytestmark = [pytest.mark.host, pytest.mark.alone]

CHOSEN = (1, 3, 14, 26)  # of the catalogue: two ranks without a plant, one rank, two ranks, a slow rank
BESIDE = 2  # runs that sleep most of the time


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Iterator[dict[int, Future[Outcome]]]:
    catalogue = runs()
    with ThreadPoolExecutor(BESIDE) as pool:
        yield {
            number: pool.submit(
                train, catalogue[number][1], catalogue[number][0], tmp_path_factory.mktemp(f"run{number}")
            )
            for number in CHOSEN
        }


@pytest.mark.parametrize("number", CHOSEN)
def test_what_was_planted_is_what_is_named(trained, number: int) -> None:
    plants: list[Plant] = runs()[number][1]
    outcome = trained[number].result()
    assert (outcome.missed, outcome.false) == ([], [])
    gains = {plant: outcome.gains[plant] for plant in plants}
    assert {plant: gain for plant, gain in gains.items() if not is_near(*gain)} == {}
