"""Slopes of delays that are planted in synthetic steps, whose truth is known."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from flagscale_perf.profile.analysis.causal import Causal, Effect
from flagscale_perf.profile.analysis.report import ProfileReport, report_of
from flagscale_perf.profile.analysis.source import read_profile
from flagscale_perf.profile.records import DelayRecord
from flagscale_perf.spine.delays import Delays
from tests.profile_runs import MS, Profiled, add_rank

TEXT = "0:model.layers.0,1:model.layers.0,1:model.layers.1.mlp:aten::silu,ms=5/10"


@dataclass(frozen=True)
class Truth:
    """What 1 ms on each rank does to a step of both ranks, and to the next one; in ms.

    Attributes:
        felt: for either delayed rank, what the step of rank 0 is longer, and of rank 1; then the next ones.
        noise: that a step is longer by; of both ranks.
        is_run: whether a place runs.
    """

    felt: tuple[tuple[float, float, float, float], tuple[float, float, float, float]]
    noise: Callable[[], float] = lambda: 0.0
    is_run: Callable[[str], bool] = lambda module: True


HIDDEN, WHOLE = (0.0, 0.0, 0.0, 0.0), (1.0, 1.0, 0.0, 0.0)


def reported(directory: Path, truth: Truth, text: str = TEXT, steps: int | None = None) -> ProfileReport:
    """A report of both ranks with an experiment behind their profiled steps."""
    job, delays = Profiled(), Delays.parse(text)
    for rank in (0, 1):
        add_rank(job, rank)
    ends, felt = [10_000.0, 10_000.0], [0.0, 0.0]
    for position in range(delays.length if steps is None else steps):
        arm, noise = delays.arm(position), truth.noise()
        place = arm.place
        ms = arm.delay_ns / MS if place is not None and truth.is_run(place.module) else 0.0
        change = truth.felt[0 if place is None else place.rank]
        for rank in (0, 1):
            took = 100.0 + noise + felt[rank] + ms * change[rank]
            start_ns, ends[rank] = round(ends[rank] * MS), ends[rank] + took
            job.add(
                DelayRecord, rank + 1, iteration=30 + position, start_ns=start_ns, total_ns=round(took * MS),
                delayed_rank=None if place is None else place.rank, is_second=int(arm.is_second),
                module="" if place is None else place.module, op="" if place is None else place.op,
                asked_ns=arm.delay_ns, planted_ns=round(ms * MS) if place and place.rank == rank else 0,
                runs=int(ms > 0),
            )  # fmt: skip
        felt = [ms * each for each in change[2:]]
    directory.mkdir()
    return report_of(read_profile(job.write(directory)))


def found(report: ProfileReport) -> Causal:
    assert report.causal is not None
    return report.causal


def test_what_is_felt_whole_has_slope_1_and_what_is_hidden_slope_0(tmp_path: Path) -> None:
    """The first step is left out: none is before it. Layer 0 of rank 1 takes 18 + 5 + 5 ms forward, waiting
    in collectives aside; silu takes 3.
    """
    report = reported(tmp_path / "run", Truth((HIDDEN, WHOLE)))
    causal = found(report)
    assert [(each.name, each.steps) for each in causal.effects] == [
        ("rank 1, model.layers.0", 19),
        ("rank 1, model.layers.1.mlp, aten::silu", 20),
        ("rank 0, model.layers.0", 20),
    ]
    for each, slope in zip(causal.effects, (1.0, 1.0, 0.0), strict=True):
        assert (each.slope, each.low, each.high) == pytest.approx((slope,) * 3, abs=1e-3)
        assert [planted for planted, _ in each.planted_ns] == [5 * MS, 10 * MS]
        assert [longer for _, longer in each.planted_ns] == pytest.approx(
            [5 * MS * slope, 10 * MS * slope], abs=1
        )
    assert causal.alike_ns == pytest.approx((0.0, 0.0, 0.0), abs=1e3)
    assert (causal.steps, causal.untouched) == (79, 20)
    layer, silu, _ = causal.effects
    assert (layer.own_ns, silu.own_ns) == (28 * MS, 3 * MS)


def test_a_delay_that_another_rank_feels_one_step_later_is_felt_whole(tmp_path: Path) -> None:
    """At the end of rank 1's step; and one that rank 1 makes good by waiting less in the next is not felt."""
    later = Truth(((1.0, 0.0, -1.0, 0.0), (0.0, 1.0, 1.0, 0.0)))
    slopes = {each.name: each.slope for each in found(reported(tmp_path / "run", later)).effects}
    assert slopes["rank 1, model.layers.0"] == pytest.approx(1.0, abs=1e-3)
    assert slopes["rank 0, model.layers.0"] == pytest.approx(0.0, abs=1e-3)


def test_other_programs_make_the_interval_wide_and_the_slope_not_wrong(tmp_path: Path) -> None:
    """A third of the steps is longer by up to 200 ms, and all jitter by up to 2 ms."""
    chance = random.Random(3)

    def noise() -> float:
        return 2 * chance.random() + (200 * chance.random() if chance.random() < 0.33 else 0)

    causal = found(
        reported(tmp_path / "run", Truth((HIDDEN, (0.5, 0.5, 0.0, 0.0)), noise), f"{TEXT},rounds=20")
    )
    for each in causal.effects:
        slope = 0.0 if each.rank == 0 else 0.5
        assert each.low is not None and each.high is not None
        assert each.slope == pytest.approx(slope, abs=0.1)
        assert each.low - 0.02 <= slope <= each.high + 0.02
        assert each.high - each.low > 0.01
    assert causal.alike_ns is not None and abs(causal.alike_ns[0]) < 2 * MS


def test_a_machine_that_gets_slower_and_faster_again_changes_no_slope(tmp_path: Path) -> None:
    """By up to 60 ms, six times the largest delay, over some rounds; only steps of one round are compared."""
    position = iter(range(10**6))

    def noise() -> float:
        return 60 * abs(next(position) // 8 % 10 - 5) / 5  # a round is 8 steps

    causal = found(reported(tmp_path / "run", Truth((HIDDEN, WHOLE), noise)))
    for each in causal.effects:
        slope = float(each.rank)
        assert (each.slope, each.low, each.high) == pytest.approx((slope,) * 3, abs=1e-3)
        assert each.conclusion == f"{'felt' if slope else 'hidden'} for the most part"
        assert [longer for _, longer in each.planted_ns] == pytest.approx(
            [5 * MS * slope, 10 * MS * slope], abs=1
        )


@pytest.mark.parametrize(
    ("slope", "low", "high", "said"),
    [
        (0.9, 0.6, 1.3, "felt for the most part"),
        (0.1, -0.6, 0.4, "hidden for the most part"),
        (0.45, 0.4, 0.6, "about half is felt"),
        # 0.9 on one side, where 0.5 are between 1.0 and a half: 1.8 times too wide, 3.24 times the rounds
        (1.0, 0.1, 1.4, "not conclusive: some 33 rounds are needed, or delays 1.8 times as long"),
        (0.5, 0.0, 1.0, "not conclusive: some 160 rounds are needed, or delays 4.0 times as long"),
    ],
)
def test_an_interval_that_tells_nothing_says_what_would_be_needed(
    slope: float, low: float, high: float, said: str
) -> None:
    planted = [(5.0 * MS, 0.0), (10.0 * MS, 0.0)]
    assert Effect(1, "layer", "", 20, planted, slope, low, high, None).conclusion == said


def test_places_that_say_nothing_have_a_reason(tmp_path: Path) -> None:
    nowhere = Truth((HIDDEN, WHOLE), is_run=lambda module: "layers.1" not in module)
    *_, last = found(reported(tmp_path / "nowhere", nowhere)).effects
    assert (last.name, last.slope, last.low) == ("rank 1, model.layers.1.mlp, aten::silu", None, None)
    assert last.reason.startswith("nothing was planted")
    few = found(reported(tmp_path / "few", nowhere, steps=24))
    assert {each.reason for each in few.effects} == {last.reason, "fewer than 5 steps of each sort"}
    assert few.alike_ns is None


def test_a_profile_without_an_experiment_has_none(found: ProfileReport) -> None:
    assert found.causal is None
    assert found.as_dict()["causal"] is None


def test_the_place_that_the_step_waits_for_is_a_finding(tmp_path: Path) -> None:
    report = reported(tmp_path / "run", Truth((HIDDEN, WHOLE)))
    layer, *others = report.findings
    assert (layer.title, layer.ranks) == ("The step waits for rank 1, model.layers.0", [1])
    assert layer.evidence[0].figure == (
        "ms longer a step for each ms of delay there, 1.00 to 1.00 by 19 delayed steps"
    )
    assert layer.cost_share == pytest.approx(28 / 101, rel=1e-3)
    assert sorted(each.title for each in others) == [
        "The step waits for rank 1, model.layers.1.mlp, aten::silu",
    ]
