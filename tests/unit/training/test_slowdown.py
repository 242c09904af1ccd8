"""What is said live of steps that become slower within a run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest

from flagscale_perf.spine.live import FindingRecord
from flagscale_perf.training.records import IntervalRecord
from flagscale_perf.training.slowdown import KEPT, SlowdownWatch
from tests.fakes import MS, make_interval
from tests.noisy import KINDS, STEP_NS, plan

SEEDS = 50  # of each kind
SIZE = 10  # steps of an interval


def interval_of(number: int, mean_ms: float, **fields: object) -> IntervalRecord:
    return make_interval(SIZE * number, **{"iteration_ns": round(SIZE * mean_ms * MS)} | fields)


def told(intervals: Iterable[IntervalRecord]) -> list[tuple[int, FindingRecord]]:
    watch = SlowdownWatch()
    said = [(interval.iteration, watch.add(interval)) for interval in intervals]
    return [(iteration, found) for iteration, found in said if found is not None]


def course(count: int, mean_ms: Callable[[int], float], seed: int = 1) -> list[IntervalRecord]:
    """Means that scatter by 1 %."""
    chance = random.Random(seed)
    return [interval_of(n, mean_ms(n) * chance.gauss(1, 0.01)) for n in range(1, count + 1)]


@pytest.mark.parametrize("count", [100, 400, 6000])
def test_a_rise_is_told_once_with_its_iteration(count: int) -> None:
    ((when, found),) = told(course(count, lambda n: 100 if n <= count // 2 else 110))
    longer, since = found.text.split(" % longer since about iteration ")
    iteration, levels = since.split(" ", 1)
    assert 9 <= int(longer.removeprefix("a step takes ")) <= 11
    assert abs(int(iteration) - SIZE * count / 2) <= SIZE * count / 40
    assert levels[:3] == "(10" or levels[:3] == "(99"
    assert when <= SIZE * (count / 2 + 24 * max(1, min(16, count / 64)))
    assert (found.finding, found.state, found.unit) == ("slowdown", "begins", "share")
    assert found.severity == pytest.approx(0.1, abs=0.01)
    assert found.evidence["rate_down_share"] == pytest.approx(1 - 100 / 110, abs=0.01)
    assert (found.evidence["since_iteration"], found.evidence["before_ms"]) == (
        int(iteration),
        pytest.approx(100, rel=0.01),
    )


def test_what_comes_back_ends_and_may_begin_again() -> None:
    said = told(course(400, lambda n: 120 if 100 < n <= 200 or n > 300 else 100))
    assert [found.state for _, found in said] == ["begins", "ends", "begins"]
    back = said[1][1]
    assert back.text.startswith(("steps are back to 100", "steps are back to 99"))
    assert back.severity == pytest.approx(0, abs=0.01)


def test_a_second_rise_is_told_where_it_doubles_what_was_told() -> None:
    said = told(course(120, lambda n: 100 if n <= 40 else 110 if n <= 80 else 130))
    assert [found.state for _, found in said] == ["begins", "worsens"]
    assert said[1][1].severity == pytest.approx(0.3, abs=0.01)
    assert len(told(course(120, lambda n: 100 if n <= 40 else 110 if n <= 80 else 115))) == 1


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"drift"}))  # that one becomes slower in truth
def test_healthy_noise_is_never_told(kind: str) -> None:
    for seed in range(SEEDS):
        extra = plan(kind, seed, steps=800).extra
        means = [
            STEP_NS + sum(sum(extra(step).values()) for step in range(n - SIZE + 1, n + 1)) / SIZE
            for n in range(SIZE, 801, SIZE)
        ]
        assert told(interval_of(n, mean / MS) for n, mean in enumerate(means, start=1)) == [], seed


def test_pauses_and_what_is_slow_for_a_few_intervals_are_not_told() -> None:
    paused = [interval_of(n, 100 + n % 3, checkpoint_ns=(n % 7 == 0) * 60_000 * MS) for n in range(1, 200)]
    assert told(paused) == []
    assert told(course(200, lambda n: 150 if n % 20 == 0 else 100)) == [], "steps beside a slow checkpoint"
    assert told(course(200, lambda n: 200 if 100 < n <= 110 else 100)) == []


def test_warm_up_and_intervals_that_trained_nothing_do_not_count() -> None:
    usual = course(64, lambda n: 100)
    strange = [{"warmup_only": True, "iteration_ns": 10**12}, {"steps": 0, "iteration_ns": 0}]
    mixed = [each for n, one in enumerate(usual) for each in (one, interval_of(n, 1, **strange[n % 2]))]
    assert told(mixed) == []


def test_more_work_in_a_step_is_no_slowdown() -> None:
    def grown(n: int) -> IntervalRecord:
        share = 1 if n <= 100 else 2
        return interval_of(n, 100 * share + n % 3, model_flops=share * 10**13, tokens=share * 10**4)

    assert told(map(grown, range(1, 201))) == []


def test_what_is_kept_does_not_grow_with_the_run() -> None:
    watch = SlowdownWatch()
    for interval in course(KEPT * 20, lambda n: 100):
        assert watch.add(interval) is None
        assert len(watch._means) < KEPT
