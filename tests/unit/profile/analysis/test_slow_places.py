"""What one rank alone spends in a place of the model, and what the rules say of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.profile.analysis.instrument import report_of
from flagscale_perf.profile.analysis.paired import slow_on_ranks
from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.profile.analysis.source import read_profile
from flagscale_perf.profile.records import Sort
from tests.profile_runs import FORWARD, MATMUL, MS, Profiled, Run

LAYERS, STEPS, STEP_MS = 4, 12, 100
More = dict[tuple[int, str], int]  # milliseconds by layer and operator; "" is Python


def _profiled(
    directory: Path, ranks: Sequence[More], steps: int = STEPS, noise_ms: int = 0, world: int = 2
) -> ProfileReport:
    """Ranks whose layers take 10 ms in matmuls and 1 ms in Python a step, and so much more."""
    job, chance = Profiled(), random.Random(7)
    for rank, more in enumerate(ranks):
        process = job.rank(rank, world)
        numbers = [job.step(process, 1000 * at, STEP_MS, STEP_MS).number for at in range(steps)]
        runs = {
            number: [
                Run(
                    FORWARD,
                    f"model.layers.{layer}",
                    op,
                    (usual + more.get((layer, op), 0) + chance.randint(0, noise_ms)) * MS,
                )
                for layer in range(LAYERS)
                for op, usual in ((MATMUL, 10), ("", 1))
            ]
            for number in numbers
        }
        for layer in range(LAYERS):
            for op, usual, sort in ((MATMUL, 10, Sort.OPERATOR), ("", 1, Sort.HOST)):
                ms = steps * (usual + more.get((layer, op), 0))
                job.row(process, (FORWARD, f"model.layers.{layer}", sort, op, 1, ms, None, None), steps=steps)
        job.window(process, steps=steps, calls=job.runs(directory, runs))
    return report_of(read_profile(open_session(job.write(directory))))


def _found(report: ProfileReport) -> dict[str, str]:
    return {one.name: one.title for one in report.findings}


def test_a_layer_in_which_one_rank_alone_sleeps(tmp_path: Path) -> None:
    report = _profiled(tmp_path, [{}, {(1, ""): 30}])
    one = next(each for each in report.findings if each.name == "slow_on_rank")
    assert one.title == "Rank 1 takes 30.0 ms longer than the others in layer 1, Python (forward)"
    assert (one.ranks, one.phase, one.step_ms, one.where) == ([1], "forward", 30.0, "layer 1, Python")
    assert "slow_layer" not in _found(report)  # a mean of both ranks, of which one is named
    assert one.base == "the profiled steps"


def test_work_of_several_kinds_is_named_by_its_place_alone(tmp_path: Path) -> None:
    report = _profiled(tmp_path, [{(2, ""): 20, (2, MATMUL): 20}, {}, {}], world=3)
    assert (
        _found(report)["slow_on_rank"] == "Rank 0 takes 40.0 ms longer than the others in layer 2 (forward)"
    )


def test_a_layer_that_is_slow_on_all_ranks_is_of_none(tmp_path: Path) -> None:
    found = _found(_profiled(tmp_path, [{(1, ""): 30}, {(1, ""): 30}]))
    assert "slow_on_rank" not in found
    assert found["slow_layer"].startswith("Layer 1 takes 3.7 times as long")


def test_a_rank_that_is_slower_everywhere_has_no_place(tmp_path: Path) -> None:
    slower = {(layer, op): ms for layer in range(LAYERS) for op, ms in ((MATMUL, 10), ("", 1))}
    assert "slow_on_rank" not in _found(_profiled(tmp_path, [{}, slower]))


@pytest.mark.parametrize("steps", [3, STEPS])
def test_a_busy_machine_and_few_steps_name_nobody(tmp_path: Path, steps: int) -> None:
    ranks: list[More] = [{}, {(1, ""): 30}] if steps < STEPS else [{}, {}]
    report = _profiled(tmp_path, ranks, steps=steps, noise_ms=20)
    assert "slow_on_rank" not in _found(report)
    assert slow_on_ranks(report.profile, report.sums["train"]) == []


def test_of_one_profiled_rank_of_several_the_slow_layer_is_its_own(tmp_path: Path) -> None:
    report = _profiled(tmp_path, [{(1, ""): 30}])
    one = next(each for each in report.findings if each.name == "slow_layer")
    assert (one.ranks, one.step_ms) == ([0], pytest.approx(30.0))
    assert one.where == "layer 1, the layer itself (host)"
    alone = _profiled(tmp_path, [{(1, ""): 30}], world=1)
    assert next(each for each in alone.findings if each.name == "slow_layer").ranks == []


@pytest.mark.parametrize(("part", "named"), [(FORWARD, ["host_bound"]), ("other", [])])
def test_who_waits_for_a_batch_does_not_lack_long_operators(
    tmp_path: Path, part: str, named: list[str]
) -> None:
    """Python takes 60 of 100 ms, in the forward pass or outside of the model and the optimizer."""
    job = Profiled()
    process = job.rank(0, 1)
    for number in range(6):
        job.step(process, 1000 * number, 100, 40, 0, 60, 0, 0, 0)
    job.row(process, (FORWARD, "model", Sort.OPERATOR, MATMUL, 6, 240, None, None), steps=6)
    job.row(process, (part, "", Sort.HOST, "", 6, 360, None, None), steps=6)
    job.window(process, steps=6, clean_steps=0)
    found = report_of(read_profile(open_session(job.write(tmp_path)))).findings
    assert [one.name for one in found] == named
