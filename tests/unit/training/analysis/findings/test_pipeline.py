"""Uneven stages, side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.report.findings import gained
from tests.fakes import MS
from tests.pipelines import Schedule
from tests.synthetic import STEPS, Plan, node_record, ranks_record
from tests.unit.training.analysis.findings.planted import findings_of

FOUR_STAGES = {
    "pipeline_parallel": 4,
    "data_parallel": 2,
    "micro_batch_size": 1,
    "pipeline_schedule": "1f1b",
}
PLACES = [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_slow_stage_is_seen_side_by_side_too(tmp_path: Path) -> None:
    # Of 1000 ms stage 1 works 950, the others 750.
    work = [(950 if place == 1 else 750) * MS for place in PLACES]
    also = [node_record(stages=PLACES), *(ranks_record(n, work_ns=work) for n in range(10, STEPS, 10))]
    found = findings_of(Plan(facts=FOUR_STAGES | {"global_batch_size": 100}, also=also), tmp_path)
    assert [(each.name, each.ranks) for each in found] == [("slow_stage", [2, 3])]
    assert (
        found[0].title
        == "Pipeline stage 1 has more to do: balancing the stages would save at most 20.0 % of the steps'"
        " time"
    )
    assert (found[0].least_gain, found[0].gain) == (None, pytest.approx(0.2 / 0.8))
    assert gained(found[0]) == (
        "at most +25.0 % tokens/s (arithmetic: `flagscale-perf capture RUN` would replace it)"
    )


@pytest.mark.parametrize("times", [1.2, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("batches", [8, 32])
@pytest.mark.parametrize("heavy", range(4))
def test_what_an_even_division_saves_is_no_more_than_the_bound(
    tmp_path: Path, batches: int, heavy: int, times: float
) -> None:
    """One stage takes so many times as long as the three others, or each of them a fourth of that more."""
    uneven, even, light = (Schedule(4, 1, batches, seed=1, least_ms=100) for _ in range(3))
    for stage, phase, step, batch in list(even.times):
        own_ns = {"forward": 100, "backward": 200}.get(phase, 0) * MS
        even.times[stage, phase, step, batch] = round(own_ns * (3 + times) / 4)
        uneven.times[stage, phase, step, batch] = round(own_ns * (times if stage == heavy else 1))
        light.times[stage, phase, step, batch] = own_ns
    step_ns, even_ns, light_ns = (each.run()[1] for each in (uneven, even, light))
    work = [round(batches * 300 * MS * (times if place == heavy else 1)) for place in PLACES]
    also = [
        node_record(stages=PLACES),
        *(ranks_record(n, work_ns=work, iteration_ns=[step_ns] * 8) for n in range(10, STEPS, 10)),
    ]
    plan = Plan(facts=FOUR_STAGES | {"global_batch_size": 2 * batches}, also=also)
    (found,) = [each for each in findings_of(plan, tmp_path) if each.name == "slow_stage"]
    assert found.gain is not None and found.gain >= step_ns / min(even_ns, light_ns) - 1 - 1e-6


@pytest.mark.parametrize(("schedule", "work_ms"), [("interleaved", 950), ("1f1b", 10**7)])
def test_what_is_not_known_is_a_bound_and_impossible_work_no_crash(
    tmp_path: Path, schedule: str, work_ms: int
) -> None:
    work = [(work_ms if place == 1 else 750) * MS for place in PLACES]
    also = [node_record(stages=PLACES), *(ranks_record(n, work_ns=work) for n in range(10, STEPS, 10))]
    facts = FOUR_STAGES | {"global_batch_size": 100, "pipeline_schedule": schedule}
    (found,) = [each for each in findings_of(Plan(facts=facts, also=also), tmp_path) if each.ranks == [2, 3]]
    assert found.least_gain is None
    assert ("would save at most 20.0 %" in found.title) == (work_ms == 950)
