"""Verdicts on runs whose truth is known; how often they err is what the method promises."""

import functools
import math
import random
from collections.abc import Iterable, Iterator
from statistics import stdev

import pytest

from flagscale_perf.analysis.compare.compare import NOT_SLOWER
from flagscale_perf.analysis.compare.gate import gate
from flagscale_perf.analysis.compare.judge import FASTER, SLOWER, UNDECIDED, UNKNOWN, Judge, Needed, Row
from flagscale_perf.spine import bootstrap
from flagscale_perf.spine.averages import mean
from flagscale_perf.training.analysis.steps import Step
from flagscale_perf.training.phases import PHASES
from tests.simulated import SHARES, Process, _column, simulate

STEPS = 60


class Judged(Judge):
    """A judge of steps and their phases, in milliseconds."""

    def __init__(self, rows: list[list[Step]], bases: int, noise: float) -> None:
        super().__init__([[step.iteration_ns / 1e6 for step in row] for row in rows], bases, noise)
        self._phases = {
            name: [
                [None if step.phases_ns[place] is None else step.phases_ns[place] / 1e6 for step in row]
                for row in rows
            ]
            for place, name in enumerate(PHASES)
            if all(step.phases_ns is not None for row in rows for step in row)
        }

    def phases(self) -> list[Row]:
        return self.parts(self._phases)


@pytest.fixture(autouse=True, scope="module")
def _draws_are_made_once() -> Iterator[None]:
    """They follow from the length of a run and of its blocks alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bootstrap, "draws", functools.cache(bootstrap.draws))
        yield


def judge(base: Iterable[list[Step]], new: Iterable[list[Step]], noise: float = 0.01) -> Judged:
    sides = list(base), list(new)
    return Judged([*sides[0], *sides[1]], len(sides[0]), noise)


def pair(seed: int, process: Process, runs: int = 1, **slower: float) -> Judged:
    base = [simulate(1000 * seed + number, STEPS, process) for number in range(runs)]
    return judge(
        base, [simulate(1000 * seed + 500 + number, STEPS, process, **slower) for number in range(runs)]
    )


def steps(times_ms: list[float], **phases_ms: float) -> list[Step]:
    """Steps of these times, the given phases the same in each."""
    phases = tuple(round(phases_ms[name] * 1e6) if name in phases_ms else None for name in PHASES)
    return [Step(number, round(time * 1e6), 4, 512, None, phases) for number, time in enumerate(times_ms)]


@pytest.mark.parametrize("process", [Process(), Process(memory=0.8, tail=0.1)], ids=str)
def test_one_run_a_side_of_the_same_is_called_different_at_most_once_in_20(process) -> None:
    found = [pair(seed, process) for seed in range(100)]
    assert sum(one.whole().verdict != UNDECIDED for one in found) <= 5
    assert sum(any(row.verdict != UNDECIDED for row in one.phases()) for one in found) <= 5


def test_several_runs_a_side_of_the_same_are_called_different_as_often_as_promised() -> None:
    different = sum(
        pair(seed, Process(memory=0.3), runs=3).whole().verdict != UNDECIDED for seed in range(100)
    )
    assert different <= 12  # 5 % are 5; more than 12 would come once in seven hundred


@pytest.mark.parametrize(("runs", "at_least"), [(1, 95), (3, 88)])
def test_intervals_hold_the_true_change(runs, at_least) -> None:
    rows = [pair(seed, Process(), runs=runs, backward=0.05).whole() for seed in range(100)]
    assert sum(row.share_low <= 0.05 <= row.share_high for row in rows) >= at_least


def test_a_slowdown_of_5_percent_is_found_and_its_phase_is_the_worst() -> None:
    found = [
        pair(seed, Process(step_noise=0.02, run_noise=0.005), runs=3, backward=0.05) for seed in range(50)
    ]
    assert sum(one.whole().verdict == SLOWER for one in found) >= 48
    worst = [max(one.phases(), key=lambda row: row.share) for one in found]
    assert sum((row.name, row.verdict) == ("backward", SLOWER) for row in worst) >= 45


def test_steps_without_noise_leave_the_assumed_noise_alone() -> None:
    # 1 % between runs, sqrt(2) of it between two, 1.99 of that with 80 steps; the variance goes with the time
    one = judge([steps([100] * 40, forward=25)], [steps([104] * 40, forward=29)])
    whole, (forward,) = one.whole(), one.phases()
    assert (whole.base, whole.base_low, whole.base_high, whole.new, whole.change) == (100, 100, 100, 104, 4)
    reach = whole.share_high - whole.share
    log_reach = 0.01 * 2**0.5 * 1.9908
    assert reach == pytest.approx(1.04 * (math.exp(log_reach) - 1), rel=1e-4)
    assert (whole.share, whole.verdict) == (pytest.approx(0.04), SLOWER)
    assert (1 + whole.share_high) * (1 + whole.share_low) == pytest.approx(1.04**2)
    assert forward.share_high - forward.share == pytest.approx(0.29**0.5 * log_reach, rel=1e-4)


@pytest.mark.parametrize("place", [12, 29, 31, 48])
def test_every_step_slower_is_slower_wherever_the_run_jumped_within_itself(place) -> None:
    base = [95.0 + number % 5 for number in range(STEPS)]
    new = [104.0 + number % 3 if number < place else 300.0 for number in range(STEPS)]
    row = Judge([base, new], 1, 0.01).whole()
    assert row.verdict == SLOWER  # "no difference" while an interval reached equally far to both sides
    assert row.share_low < 0.1 < 2 < row.share_high


def test_runs_whose_own_intervals_are_apart_differ_beyond_all_but_the_noise_between_runs() -> None:
    rising = [100 + number / 4 for number in range(40)]
    apart = Judge([rising, [value + 10 for value in rising]], 1, 0.0)
    assert (apart.is_apart, apart.whole().verdict) == (True, SLOWER)
    assert Judge([[100.0] * 20 + [111.0], [110.0] * 21], 1, 0.0).is_apart is False


def test_faster_is_said_as_well() -> None:
    assert judge([steps([100] * 40)], [steps([90] * 40)]).whole().verdict == FASTER


def test_a_run_that_drifts_says_less() -> None:
    drifting = [100 + number / 4 for number in range(40)]
    still = judge([steps([100] * 40)], [steps([105] * 40)])
    assert still.whole().verdict == SLOWER
    assert judge([steps(drifting)], [steps([value + 5 for value in drifting])]).whole().verdict == UNDECIDED


def test_from_three_runs_a_side_they_show_the_noise_themselves() -> None:
    base, new = ([steps([level] * 20) for level in levels] for levels in ((99, 100, 101), (109, 110, 111)))
    one = judge(base, new, noise=0.5)
    assert one.is_noise_seen
    logs = [[math.log(time) for time in levels] for levels in ((99, 100, 101), (109, 110, 111))]
    assert one.noise == pytest.approx(mean([stdev(each) ** 2 for each in logs]) ** 0.5)
    high = 1.1 * math.exp(2.776 * one.noise * (2 / 3) ** 0.5)  # 4 degrees of freedom
    assert 1 + one.whole().share_high == pytest.approx(high, rel=1e-4)
    assert not judge(base[:2], new).is_noise_seen


WIDE = Process(step_noise=0.2, run_noise=0.3)


def test_no_interval_of_a_time_reaches_below_none_of_it() -> None:
    """Runs of one configuration that differ by tens of percent; 2 and 3 of them a side."""
    for runs in (2, 3):
        for seed in range(40):
            parts = {
                name: [
                    _column(random.Random(f"{seed}{name}{run}"), STEPS, share, WIDE)
                    for run in range(2 * runs)
                ]
                for name, share in SHARES.items()
            }
            parts = {name: [[max(0.0, time) for time in run] for run in part] for name, part in parts.items()}
            times = [
                [sum(step) for step in zip(*part, strict=True)] for part in zip(*parts.values(), strict=True)
            ]
            one = Judge(times, runs, 0.01)
            rows = [one.whole(), *one.parts(parts)]
            assert all(row.share_low >= -1 and row.base_low >= 0 and row.new_low >= 0 for row in rows)
    fifth = [[20.0 + 0.1 * number for number in range(30)] for _ in range(3)]
    levels = [50.0, 400.0, 1000.0]
    whole = Judge([[level] * 30 for level in levels] + fifth, 3, 0.01).whole()
    assert -1 < whole.share_low < whole.share_high


def test_the_other_way_round_the_interval_is_the_same() -> None:
    for runs in (1, 3):
        sides = [[simulate(10 * side + number, STEPS, WIDE) for number in range(runs)] for side in (1, 2)]
        there, back = judge(*sides).whole(), judge(*reversed(sides)).whole()
        assert (1 + there.share_low) * (1 + back.share_high) == pytest.approx(1)
        assert (1 + there.share_high) * (1 + back.share_low) == pytest.approx(1)


def test_from_three_runs_a_side_the_interval_holds_what_differs_by_tens_of_percent() -> None:
    rows = [pair(seed, WIDE, runs=3, backward=0.5).whole() for seed in range(100)]
    assert sum(row.share_low <= 0.5 <= row.share_high for row in rows) >= 88


def test_a_phase_that_one_side_does_not_name_has_no_verdict() -> None:
    (row,) = judge([steps([100] * 20)], [steps([100] * 20, optimizer=3)]).phases()
    assert (row.name, row.base, row.new, row.new_low, row.share, row.verdict) == (
        "optimizer",
        None,
        3,
        3,
        None,
        UNKNOWN,
    )


def test_without_parts_there_are_no_rows() -> None:
    assert Judge([[100.0] * 20] * 2, 1, 0.01).parts({}) == []


def test_what_is_needed_without_noise_within_a_run_is_more_runs() -> None:
    # 1 % between runs: 3 a side reach (2.776 + 0.941) x 1 % x (2/3)^1/2 = 3.03 %, 4 a side
    # (2.447 + 0.906) x 1 % x (2/4)^1/2 = 2.37 %
    one = judge([steps([100] * 40)], [steps([100] * 40)])
    assert one.needed(0.0304, 2048) == Needed(3, None)
    assert one.needed(0.03, 2048) == Needed(4, None)
    assert one.needed(0.0, 2048) == Needed(None, None)


def test_so_many_iterations_as_are_needed_make_the_interval_as_narrow_as_asked() -> None:
    process = Process(run_noise=0, memory=0.3)
    found = []
    for seed in range(12):
        short = judge(*([simulate(2 * seed + side, STEPS, process)] for side in range(2)), noise=0.001)
        needed = short.needed(0.012, 10_000)
        if needed.iterations is not None:
            longer = [[simulate(100 + 2 * seed + side, needed.iterations, process)] for side in range(2)]
            whole = judge(*longer, noise=0.001).whole()
            found.append((whole.share_high - whole.share_low) / 2)
    assert len(found) >= 3  # the others seem to drift, which longer runs do not mend
    assert mean(found) < 0.012


def test_longer_runs_are_not_asked_for_where_a_run_can_have_no_more() -> None:
    one = pair(3, Process(run_noise=0))
    assert one.needed(0.02, STEPS).iterations is None


@pytest.mark.parametrize(
    ("truth", "wrong", "most"), [(0.0, SLOWER, 5), (0.03, NOT_SLOWER, 7), (-0.03, SLOWER, 0)]
)
def test_the_gate_errs_as_seldom_as_promised(truth, wrong, most) -> None:
    found = [pair(seed, Process(), backward=truth) for seed in range(100)]
    outcomes = [
        gate(one.whole(), 0.03, lambda distance, one=one: one.needed(distance, 2048)).outcome for one in found
    ]
    assert outcomes.count(wrong) <= most


def test_the_mean_is_judged_where_it_is_asked_for() -> None:
    times = [[100.0] * 19 + [200.0], [100.0] * 20]
    assert [row.whole().base for row in (Judge(times, 1, 0.01), Judge(times, 1, 0.01, mean))] == [100, 105]
