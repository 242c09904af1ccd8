"""Steps taken apart, by figures that can be counted."""

from __future__ import annotations

import random
from collections.abc import Callable

from flagscale_perf.training.analysis.findings.anatomy import Anatomy
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.sample import Step
from tests.fakes import MS

USUAL = {"data_loading": 5, "forward": 30, "backward": 60, "other": 5}


def taken_apart(more: Callable[[int], dict[str, int]], steps: int = 320) -> Anatomy:
    """Steps of 100 ms, a millisecond of the forward pass uneven, and `more` milliseconds in some phases."""
    rows = []
    for number in range(1, steps + 1):
        times = USUAL | {"forward": USUAL["forward"] + number % 2}
        for name, extra in more(number).items():
            times[name] = times.get(name, 0) + extra
        phases_ns = tuple(times[name] * MS if name in times else None for name in PHASES)
        rows.append(Step(number, sum(times.values()) * MS, 4, 512, None, phases_ns))
    return Anatomy(rows)


def test_even_steps_have_nothing() -> None:
    even = taken_apart(lambda number: {})
    assert (even.periodic, even.longer, even.growth) == (None, None, None)
    assert even.usual_ns("backward") == 60 * MS
    assert list(even.phases) == list(USUAL), "phases that took no time are none"


def test_without_phases_a_period_is_seen_all_the_same() -> None:
    with_phases = taken_apart(lambda number: {"other": 50} if number % 20 == 0 else {})
    without = Anatomy([step._replace(phases_ns=None) for step in with_phases.steps])
    found = without.periodic
    assert found is not None and (found.period.distance, found.phase) == (20, None)
    assert found.excess_ns == 49 * MS, "the usual step of an even number is the longer one"
    assert (without.longer, without.growth, without.phases) == (None, None, {})


def test_what_a_period_explains_is_not_told_again() -> None:
    found = taken_apart(lambda number: {"other": 50} if number % 20 == 0 else {})
    assert found.periodic is not None and found.periodic.phase == "other"
    assert found.longer is None


def test_steps_longer_in_the_rest_as_often_speak_against_a_phase() -> None:
    places = [7 * number + number * number % 5 for number in range(1, 41)]
    alone = taken_apart(lambda number: {"forward": 60} if number in places[::2] else {})
    assert alone.longer is not None and (alone.longer.phase, len(alone.longer.iterations)) == ("forward", 20)
    both = taken_apart(
        lambda number: (
            {"forward": 60} if number in places[::2] else {"backward": 60} if number in places else {}
        )
    )
    assert both.longer is None


def test_a_phase_that_grows_has_both_ends_and_what_it_took_in_the_mean() -> None:
    growth = taken_apart(lambda number: {"other": number // 4}).growth
    assert growth is not None and (growth.phase, growth.since) == ("other", None)
    # from 5 + 0 to 5 + 80 ms: the first twenty steps have 5 + 2.5 in the median, the last ones 5 + 77.5
    assert (round(growth.first_ns / MS), round(growth.last_ns / MS)) == (7, 82)
    assert round(growth.mean_ns / MS) == 40


def test_bursts_at_the_end_do_not_hide_growth() -> None:
    late = taken_apart(lambda number: {"other": number // 4} | ({"forward": 300} if number > 300 else {}))
    assert late.growth is not None and late.growth.phase == "other"


def test_a_phase_that_takes_longer_from_a_step_on_has_that_step() -> None:
    growth = taken_apart(lambda number: {"other": 40} if number >= 194 else {}).growth
    assert growth is not None and (growth.phase, growth.since) == ("other", 193)
    assert (growth.first_ns, growth.last_ns) == (5 * MS, 45 * MS)
    assert growth.mean_ns == 40 * MS * 127 / 320


def test_a_phase_that_becomes_shorter_does_not_grow() -> None:
    assert taken_apart(lambda number: {"other": 40} if number < 194 else {}).growth is None


def test_what_is_longer_in_a_stretch_only_does_not_last() -> None:
    assert taken_apart(lambda number: {"other": 40} if 100 < number < 200 else {}).growth is None


def test_when_everything_grows_no_phase_does() -> None:
    assert (
        taken_apart(lambda number: {name: usual * number // 320 for name, usual in USUAL.items()}).growth
        is None
    )


def test_when_everything_takes_longer_from_a_step_on_no_phase_does() -> None:
    assert taken_apart(lambda number: USUAL if number > 160 else {}).growth is None


STALLS = (4, 9, 11, 20, 26, 37, 44, 58)


def test_an_exchange_that_varies_by_itself_is_no_stall_and_one_that_stalls_is() -> None:
    for seed in range(20):
        draw = random.Random(seed)
        varying = [round(draw.expovariate(1 / 12)) for _ in range(61)]
        assert taken_apart(lambda at, found=varying: {"exposed_stat_comm": found[at]}, 60).longer is None
        stalled = [ns + 150 * (at in STALLS) for at, ns in enumerate(varying)]
        longer = taken_apart(lambda at, found=stalled: {"exposed_stat_comm": found[at]}, 60).longer
        assert longer is not None and longer.phase == "exposed_stat_comm"
