"""A run in stretches: a short one exactly, a long one added up in pairs, and nothing of it lost."""

from __future__ import annotations

from collections.abc import Iterable

from flagscale_perf.training.analysis.findings.course import MAX_STRETCHES, Course
from flagscale_perf.training.columns import Intervals
from flagscale_perf.training.records import IntervalRecord
from tests.fakes import make_interval

MS = 10**6


def interval(number: int, **overrides) -> IntervalRecord:
    """The one whose last iteration is `number`: one step of 8 samples that takes `number` ns."""
    fields = {"steps": 1, "iteration_ns": number, "samples": 8, "tokens": 1024, "end_wall_ns": number * MS}
    return make_interval(number, **fields | overrides)


def course_of(numbers: Iterable[int]) -> Course:
    course = Course()
    for number in numbers:
        course.add(Intervals.of([interval(number)]))
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
        course.add(Intervals.of([interval(number)]))
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
