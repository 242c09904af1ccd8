"""A run in stretches: a short one exactly, a long one added up in pairs, and nothing of it lost."""

from __future__ import annotations

from collections.abc import Iterable

from flagscale_perf.training.analysis.findings.course import MAX_STRETCHES, WAITS, Course, Stretch
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.records import IntervalRecord
from tests.fakes import make_interval

MS = 10**6
BARE = dict.fromkeys(PHASES, 0)


def interval(number: int, **overrides) -> IntervalRecord:
    """The one whose last iteration is `number`: one step of 8 samples that takes `number` ns."""
    fields = {"steps": 1, "iteration_ns": number, "samples": 8, "tokens": 1024, "end_wall_ns": number * MS}
    return make_interval(number, **fields | overrides)


def course_of(numbers: Iterable[int]) -> Course:
    course = Course()
    for number in numbers:
        course.add(interval(number))
    return course


def spans(course: Course) -> list[tuple[int, int, int]]:
    """Of each stretch its last iteration, its steps and its time."""
    return [(one.iteration, one.steps, one.iteration_ns) for one in course.since(0)]


def test_a_short_run_is_kept_as_it_is() -> None:
    course = course_of(range(1, MAX_STRETCHES))
    assert spans(course) == [(number, 1, number) for number in range(1, MAX_STRETCHES)]


def test_the_stretch_that_fills_it_makes_pairs_of_all() -> None:
    found = spans(course_of(range(1, MAX_STRETCHES + 1)))
    assert len(found) == 512
    assert found[:2] == [(2, 2, 1 + 2), (4, 2, 3 + 4)] and found[-1] == (1024, 2, 1023 + 1024)


def test_what_comes_after_is_added_two_by_two_and_the_half_one_is_seen() -> None:
    course = course_of(range(1, MAX_STRETCHES + 4))
    assert spans(course)[-3:] == [(1024, 2, 1023 + 1024), (1026, 2, 1025 + 1026), (1027, 1, 1027)]


def test_however_long_a_run_is_its_stretches_are_few_in_order_and_lose_nothing() -> None:
    course, most = Course(), 0
    for number in range(1, 10_001):
        course.add(interval(number))
        most = max(most, len(course.since(0)))
    found = spans(course)
    assert most <= MAX_STRETCHES and {steps for _, steps, _ in found[:-1]} == {16}
    assert [last for last, _, _ in found] == [*range(16, 10_001, 16)] and 10_000 % 16 == 0
    assert sum(steps for _, steps, _ in found) == 10_000
    assert sum(time_ns for _, _, time_ns in found) == 10_000 * 10_001 // 2


def test_from_an_iteration_on_is_each_stretch_that_ends_there_or_later() -> None:
    course = course_of((10, 20, 30))
    assert [one.iteration for one in course.since(20)] == [20, 30]
    assert course.since(31) == [] == Course().since(0)


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
