"""Intervals lose no step and count none twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.records import Record
from flagscale_perf.training.records import IntervalRecord, Outcome, StepRecord
from flagscale_perf.training.window import IntervalWindow, skipped_iterations
from tests.fakes import SCALE
from tests.strategies import runs


def intervals_of(records: list[Record], length: int) -> list[IntervalRecord]:
    window = IntervalWindow(length, Anchor(0, 0), SCALE)
    found = [window.add(record) for record in records if isinstance(record, StepRecord)]
    return [interval for interval in [*found, window.close()] if interval is not None]


@given(runs(), st.integers(1, 12))
def test_what_the_steps_add_up_to_the_intervals_add_up_to(records: list[Record], length: int) -> None:
    steps = [record for record in records if isinstance(record, StepRecord)]
    intervals = intervals_of(records, length)
    assert sum(i.skipped_iterations for i in intervals) == sum(map(skipped_iterations, steps))
    assert sum(i.skipped_samples for i in intervals) == sum(s.skipped_samples for s in steps)
    counted = [s for s in steps if s.outcome != Outcome.DATA_SKIPPED]
    if not any(interval.warmup_only for interval in intervals):
        counted = [s for s in counted if not s.warmup]  # it shares its interval with others and is in no sum
    for name in ("steps", "iteration_ns", "samples", "tokens"):
        assert sum(getattr(i, name) for i in intervals) == sum(
            1 if name == "steps" else getattr(s, name) for s in counted
        )


@given(runs(), st.integers(1, 12))
def test_intervals_follow_each_other_without_gap_or_overlap(records: list[Record], length: int) -> None:
    steps = [record for record in records if isinstance(record, StepRecord)]
    intervals = intervals_of(records, length)
    assert bool(intervals) == bool(steps)
    for before, after in zip(intervals, intervals[1:], strict=False):
        assert after.first_iteration == before.iteration + 1
    for interval in intervals[:-1]:
        first = max(
            step.iteration - step.iterations for step in steps if step.iteration <= interval.iteration
        )
        assert interval.iteration // length > first // length  # it ends where a multiple is crossed
    if steps:
        assert (intervals[0].first_iteration, intervals[-1].iteration) == (
            steps[0].iteration - steps[0].iterations + 1,
            steps[-1].iteration,
        )
