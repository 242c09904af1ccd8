"""What is kept of a run, and its state."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.blocks import Note, Series
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.records import RunEnd
from flagscale_perf.training.analysis.live import SHOWN_INTERVALS, LiveRun
from flagscale_perf.training.rank_records import StragglerRecord
from tests.fakes import MS, SECOND, make_event, make_facts, make_header, make_interval, make_step

START_NS = 1_706_524_200 * SECOND


def live_run(*records) -> LiveRun:
    run = LiveRun(make_header())
    for record in records:
        run.add(record)
    return run


def straggler(is_over: bool) -> StragglerRecord:
    return StragglerRecord(
        1, 10, is_over, [3], "node0", "H200", 0, "forward", 20 * MS, 100 * MS, "peers", None
    )


def test_before_the_first_record() -> None:
    run = LiveRun(make_header(facts=make_facts(resume_iteration=40)))
    assert (run.iteration(), run.last_wall_ns(), run.left_s(), run.course.state(True)) == (
        40,
        START_NS,
        None,
        "running",
    )


def test_where_it_is_and_how_long_it_takes() -> None:
    run = live_run(make_step(20), make_interval(20))
    assert (run.iteration(), run.last_wall_ns()) == (20, START_NS + 2100 * MS)
    assert run.left_s() == pytest.approx(8.0)  # 80 iterations of 100 ms


def test_without_a_known_end_of_training_nothing_is_left() -> None:
    run = LiveRun(make_header(facts=make_facts(train_iters=None)))
    run.add(make_interval(20))
    assert run.left_s() is None


def test_killed_is_who_recorded_no_end_and_has_no_writer() -> None:
    run = live_run(make_step(1))
    assert (run.course.state(True), run.course.state(False)) == ("running", "killed")
    run.add(RunEnd("exit 3", START_NS + SECOND, 1, 0))
    assert (run.course.state(True), run.course.state(False), run.last_wall_ns()) == (
        "exit 3",
        "exit 3",
        START_NS + SECOND,
    )


def test_memory_is_bounded_and_warmup_is_left_out() -> None:
    run = live_run(make_interval(10, warmup_only=True), *(make_interval(10 * n) for n in range(1, 1000)))
    assert (len(run.intervals), run.intervals[-1].iteration) == (SHOWN_INTERVALS, 9990)


def test_stragglers_stay_until_they_are_over() -> None:
    assert list(live_run(straggler(False)).slow) == [(3,)]
    assert live_run(straggler(False), straggler(True)).slow == {}


def test_events_have_the_writers_time() -> None:
    event = make_event("slow", at_ns=90 * SECOND)
    report = live_run(event).report(True, START_NS)
    (note,) = next(section for section in report.sections if section.key == "events").blocks
    assert isinstance(note, Note) and str(note.text).startswith("10:31:30 slow: ")


def test_a_session_id_that_is_none_is_refused() -> None:
    with pytest.raises(PerfError, match="is not a session id"):
        LiveRun(make_header("\x1b[2J"))


@pytest.mark.parametrize(
    ("slow", "usual", "says"),
    [(9, 30, ", settled from iteration 10 on"), (30, 20, ", not settled yet"), (0, 30, ""), (9, 9, "")],
)
def test_a_slow_start_is_in_the_title_of_the_figures(slow: int, usual: int, says: str) -> None:
    times = [300] * slow + [100] * usual
    steps = [make_step(number, iteration_ns=time * MS) for number, time in enumerate(times, 1)]
    report = live_run(*steps, make_interval(10)).report(True, START_NS)
    (figures,) = next(section for section in report.sections if section.key == "figures").blocks
    assert isinstance(figures, Series)
    assert figures.title == f"1 intervals, to iteration 10{says}"
