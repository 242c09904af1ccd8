"""Intervals added up: under the end of the last one, and unknown where one is."""

from __future__ import annotations

from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.stretch import WAITS, Stretch
from tests.unit.training.analysis.findings.test_course import MS, interval

BARE = dict.fromkeys(PHASES, 0)


def test_two_are_added_up_under_the_end_of_the_later_one() -> None:
    first = interval(1, eval_ns=5, host_ns=100, run_delay_ns=10, io_stall_ns=1, sm_clock_mhz=1900)
    later = interval(2, eval_ns=6, checkpoint_ns=7, host_ns=50, io_stall_ns=2, sm_clock_mhz=1700)
    both = Stretch.of([Stretch.of([first]), later])
    assert (both.iteration, both.end_wall_ns, both.steps, both.iteration_ns) == (2, 2 * MS, 2, 3)
    assert (both.samples, both.tokens, both.model_flops) == (16, 2048, 80 * 10**12)
    assert (both.eval_ns, both.checkpoint_ns, both.host_ns) == (11, 7, 150)
    assert [getattr(both, name) for name in WAITS] == [10, 0, 0, 3]
    assert both.sm_clock_mhz == 1700


def test_a_sum_is_unknown_where_one_is_and_the_lowest_clock_is_of_those_read() -> None:
    known = Stretch.of([interval(1, phases_ns=BARE, sm_clock_mhz=1900)])
    unknown = Stretch.of([interval(2, model_flops=None, phases_ns=None, sm_clock_mhz=None)])
    both = Stretch.of([known, unknown])
    assert (both.model_flops, both.phases_ns, both.sm_clock_mhz) == (None, None, 1900)
    assert Stretch.of([unknown, unknown]).sm_clock_mhz is None


def test_a_phase_that_one_of_two_has_counts_and_one_that_none_has_stays_unknown() -> None:
    absent = BARE | {PHASES[1]: None, PHASES[2]: None}
    one = Stretch.of([interval(1, phases_ns=absent | {PHASES[0]: 3, PHASES[1]: 4})])
    both = Stretch.of([one, interval(2, phases_ns=absent | {PHASES[0]: 30})])
    assert both.phases_ns is not None
    assert [both.phases_ns[name] for name in PHASES[:3]] == [33, 4, None]


def test_the_mean_step_of_a_stretch() -> None:
    phases = BARE | {PHASES[0]: 9}
    both = Stretch.of([interval(1, phases_ns=phases), interval(3, phases_ns=phases)])
    step = both.mean()
    assert (step.iteration, step.iteration_ns, step.samples, step.tokens) == (3, 2, 8, 1024)
    assert step.model_flops == 40 * 10**12 and step.phases_ns is not None and step.phases_ns[0] == 9
