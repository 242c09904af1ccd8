"""Predictions are what real trainings then were: made anew of recorded runs, beside the host's own times."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.bench_whatif import DATA
from benchmarks.whatif.plans import drawn
from benchmarks.whatif.predictions import HITS, LEAST, Outcome, Recorded, outcomes, read_all
from flagscale_perf.spine.averages import median

MOST_BYTES = 3e6
HALF_WIDTH_A = 0.05  # of the step
OFF = {"plants": 0.02, "micro-batches": 0.05, "layouts": 0.05}  # median error


@pytest.fixture(scope="module")
def runs() -> dict[str, Recorded]:
    return read_all(DATA / "runs")


@pytest.fixture(scope="module")
def found(runs: dict[str, Recorded]) -> list[Outcome]:
    return [*outcomes(runs)]


def test_all_fit_into_a_repository(runs: dict[str, Recorded]) -> None:
    assert sum(path.stat().st_size for path in DATA.glob("runs/*/*")) < MOST_BYTES
    plans = {plan.name: plan for name in runs for plan in drawn(int(name.rpartition("_s")[2]))}
    assert {name: plans[name] for name in runs} == {name: run.training for name, run in runs.items()}


def test_intervals_hold_what_came(found: list[Outcome]) -> None:
    assert len(found) >= LEAST
    assert sum(each.is_hit for each in found) >= HITS * len(found), [
        each for each in found if not each.is_hit
    ]
    assert median([each.half_width for each in found if each.prediction.kind == "A"]) <= HALF_WIDTH_A


@pytest.mark.parametrize("group", OFF)
def test_predictions_are_near(found: list[Outcome], group: str) -> None:
    assert median([abs(each.error) for each in found if each.case.group == group]) <= OFF[group]


def test_a_plant_that_nobody_waits_for_is_no_gain(found: list[Outcome]) -> None:
    hidden = [each for each in found if "nobody" in each.case.kind]
    assert hidden and not any(each.prediction.is_gain for each in hidden)


def test_every_plant_is_asked_for_in_both_directions(runs: dict[str, Recorded], found: list[Outcome]) -> None:
    for run in runs.values():
        asked = Counter(each.case.words[-1] for each in found if each.case.run is run)
        for plant in run.training.plants:
            both = {words for words in asked if words.endswith(f"={plant.ms}ms")}
            assert {words[-len(f"+={plant.ms}ms")] for words in both} == {"+", "-"}, plant
