"""Windows of raw marks: decided once for all ranks, kept whole, and given back as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.device.marks import END, start_of, stop_of
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.store.decoder import decode
from flagscale_perf.training.capture import (
    LATE_NS,
    MAX_STEPS,
    TIMERS,
    Capture,
    CaptureControl,
    Window,
    packed,
    unpacked,
    window_of,
)
from flagscale_perf.training.marks import MarksJoin, in_slots
from flagscale_perf.training.phases import NUMBER_OF, PHASE_OF, PHASE_OF_NUMBER
from flagscale_perf.training.records import CapturedRecord, CaptureRecord
from tests.fakes import MS, make_marks, make_skipped_data, make_step

RECV, SEND = NUMBER_OF["backward-recv"], NUMBER_OF["backward-send"]
MARKS = [10**8 + MS + start_of(RECV), 10**8 + 3 * MS + stop_of(RECV), 10**8 + 4 * MS + END]


def test_every_timer_has_a_number_of_its_own_and_its_phase() -> None:
    assert {TIMERS[number]: PHASE_OF_NUMBER[number] for number in NUMBER_OF.values()} == PHASE_OF
    assert len(set(NUMBER_OF.values())) == len(NUMBER_OF)


def test_marks_come_back_as_they_were_also_from_a_run_file() -> None:
    numbers = packed(MARKS, 10**8)
    assert numbers == [2 * RECV, MS, 2 * RECV + 1, 2 * MS, 63, MS]
    captured = CapturedRecord(3, 7, 10**8, 90 * MS, numbers)
    assert unpacked(captured) == MARKS
    assert decode(encode(captured)) == captured


def test_only_steps_of_the_window_are_kept() -> None:
    capture = Capture(rank=3)
    join = MarksJoin(capture.add)
    capture.window = Window(2, 3)
    for iteration in (1, 2, 3, 4):
        join.take(make_marks(iteration))
        join.take(make_step(iteration))
    kept = capture.take()
    assert [(each.rank, each.iteration, each.start_ns) for each in kept] == [
        (3, 2, 2 * 10**8),
        (3, 3, 3 * 10**8),
    ]
    assert unpacked(kept[0]) == list(make_marks(2).marks)
    assert capture.take() == []


def test_a_step_that_has_lost_marks_is_not_kept() -> None:
    capture = Capture(rank=0)
    capture.window = Window(1, 1)
    join = MarksJoin(capture.add)
    first, *_ = in_slots(1, MARKS * 20)
    join.take(first)
    join.take(make_step(1))
    assert capture.take() == []


@pytest.mark.parametrize("content", [None, 7, {}, {"capture": 1}, {"capture": [1]}, {"capture": ["1", 2]}])
def test_what_is_no_window_is_an_empty_one(content: Any) -> None:
    assert 1 not in window_of(content)
    assert 1 in window_of({"capture": [1, 2]})


def make_control(
    tmp_path: Path, steps: int | None = None, ranks: int = 1
) -> tuple[CaptureControl, list[Any]]:
    announced: list[Any] = []
    return CaptureControl(tmp_path / "request", steps, announced.append, ranks), announced


def test_an_option_captures_as_soon_as_all_nodes_can_know(tmp_path: Path) -> None:
    control, announced = make_control(tmp_path, steps=20)
    assert control.take() == [], "no pace yet"
    control.step(make_step(1))
    # Steps of 100 ms: 30 of them in 3 s.
    assert control.take() == [CaptureRecord(32, 51, TIMERS)]
    assert announced == [{"capture": [32, 51]}]
    assert control.own.window == (32, 51)
    control.step(make_step(52))
    assert control.take() == [], "once"


def test_a_request_is_read_once_and_removed(tmp_path: Path) -> None:
    control, announced = make_control(tmp_path)
    control.step(make_step(10, iteration_ns=2 * NS_PER_S))
    (tmp_path / "request").write_text('{"steps": 2}')
    assert control.take() == [CaptureRecord(13, 14, TIMERS)]
    assert not (tmp_path / "request").exists()
    (tmp_path / "request").write_text('{"steps": 3}')
    assert control.take() == [], "one window at a time"
    control.step(make_step(15, iteration_ns=2 * NS_PER_S))
    assert control.take() == [CaptureRecord(18, 20, TIMERS)]
    assert announced == [{"capture": [13, 14]}, {"capture": [18, 20]}]


def test_a_window_that_nobody_asked_for_says_so_and_what_it_lacks_is_not_reported(tmp_path: Path) -> None:
    """The next writer takes no other one."""
    control, announced = make_control(tmp_path, ranks=2)
    control.own.marks = 89
    for iteration in range(1, 21):
        control.step(make_step(iteration))
        assert control.take() == ([] if iteration < 20 else [CaptureRecord(51, 57, TIMERS, "settled")])
    assert announced == [{"capture": [51, 57]}]
    assert control.missing(is_over=True) == []
    other, _ = make_control(tmp_path, ranks=2)
    other.step(make_step(20))
    other.resume(CaptureRecord(51, 57, TIMERS, "settled"))
    assert other.own.window == (51, 57)
    other.own.marks = 89
    for iteration in range(58, 90):
        other.step(make_step(iteration))
        assert other.take() == []
    assert other.missing(is_over=True) == []


def test_with_an_option_of_zero_only_a_request_makes_a_window(tmp_path: Path) -> None:
    control, _ = make_control(tmp_path, steps=0)
    control.own.marks = 89
    for iteration in range(1, 40):
        control.step(make_step(iteration))
        assert control.take() == []
    (tmp_path / "request").write_text('{"steps": 2}')
    assert control.take() == [CaptureRecord(70, 71, TIMERS)]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b"[" * 5000,
        json.dumps({"steps": 0}).encode(),
        json.dumps({"steps": MAX_STEPS + 1}).encode(),
        b'{"steps": "3"}',
        b'{"steps": true}',
    ],
)
def test_what_is_no_request_is_removed_and_nothing_more(tmp_path: Path, content: bytes) -> None:
    control, announced = make_control(tmp_path)
    control.step(make_step(10))
    (tmp_path / "request").write_bytes(content)
    assert (control.take(), announced) == ([], [])
    assert not (tmp_path / "request").exists()


def test_the_next_writer_goes_on_with_the_window(tmp_path: Path) -> None:
    control, announced = make_control(tmp_path, steps=20)
    control.resume(CaptureRecord(32, 51, TIMERS))
    control.step(make_step(40))
    assert (control.take(), control.own.window, announced) == ([], (32, 51), [{"capture": [32, 51]}])


def test_the_lead_is_of_the_usual_pace_whatever_one_step_takes(tmp_path: Path) -> None:
    control, _ = make_control(tmp_path, steps=1)
    control.step(make_step(1, warmup=1, iteration_ns=20 * NS_PER_S))
    control.step(make_skipped_data(2, 1, iteration_ns=1))
    assert control.take() == [], "nothing yet that says how long a step takes"
    control.step(make_step(3))
    control.step(make_step(4, iteration_ns=20 * NS_PER_S))
    assert control.take() == [CaptureRecord(35, 35, TIMERS)]


def window_of_four(tmp_path: Path, ranks: int) -> CaptureControl:
    """Steps of 1 s; iterations 6 to 9 are captured."""
    control, _ = make_control(tmp_path, steps=4, ranks=ranks)
    step(control, 2)
    assert control.take() == [CaptureRecord(6, 9, TIMERS)]
    return control


def step(control: CaptureControl, *iterations: int) -> None:
    for each in iterations:
        control.step(make_step(each, start_ns=each * NS_PER_S, iteration_ns=NS_PER_S))


def marks_of(rank: int, *iterations: int) -> list[CapturedRecord]:
    return [CapturedRecord(rank, each, each * NS_PER_S, NS_PER_S, []) for each in iterations]


def test_a_window_that_is_whole_is_no_matter(tmp_path: Path) -> None:
    control = window_of_four(tmp_path, ranks=2)
    step(control, *range(3, 10))
    control.came([*marks_of(0, 6, 7, 8, 9), *marks_of(1, 6, 7, 8, 9)])
    assert (control.missing(), control.missing(is_over=True)) == ([], [])


def test_what_a_window_lacks_at_the_end_is_reported_by_rank_and_iteration(tmp_path: Path) -> None:
    control = window_of_four(tmp_path, ranks=4)
    step(control, *range(3, 9))
    control.came([*marks_of(0, 6, 7, 8), *marks_of(1, 7), *marks_of(2, 6, 7, 8), *marks_of(3, 7)])
    control.came(["something else", *marks_of(9, 6), *marks_of(0, 5)])
    assert control.missing() == [], "they may still come"
    assert control.missing(is_over=True) == [
        "iterations 6 to 9 are not captured whole: iteration 9 did not come, as the training ended at 8, and"
        " there are no marks of 6, 8 of ranks 1, 3: they were not taken, or lost, or these steps were over"
        " when rank 0 asked for them"
    ]
    assert control.missing(is_over=True) == [], "once"


def test_a_training_that_ends_before_its_window_captures_nothing_and_reports_that(tmp_path: Path) -> None:
    control = window_of_four(tmp_path, ranks=2)
    step(control, 3)
    assert control.missing(is_over=True) == [
        "iterations 6 to 9 are not captured whole: iterations 6 to 9 did not come, as the training ended at 3"
    ]


def test_data_passed_over_has_no_marks_to_miss(tmp_path: Path) -> None:
    control = window_of_four(tmp_path, ranks=2)
    step(control, 6)
    control.step(make_skipped_data(8, 2, start_ns=7 * NS_PER_S))
    step(control, 9)
    control.came([*marks_of(0, 6, 9), *marks_of(1, 6, 9)])
    assert control.missing(is_over=True) == []


def test_what_has_not_come_a_minute_later_is_reported_while_the_training_goes_on(tmp_path: Path) -> None:
    control = window_of_four(tmp_path, ranks=1)
    step(control, *range(3, 10))
    control.came(marks_of(0, 6, 7, 8))
    minute = LATE_NS // NS_PER_S
    step(control, 9 + minute)
    assert control.missing() == []
    step(control, 10 + minute)
    (text,) = control.missing()
    assert text.startswith("iterations 6 to 9 are not captured whole: there are no marks of 9 of rank 0: ")


def test_the_next_writer_knows_what_came_and_what_was_reported(tmp_path: Path) -> None:
    control, _ = make_control(tmp_path, ranks=1)
    for first in (6, 16, 26):
        control.resume(CaptureRecord(first, first + 3, TIMERS))
        control.came(marks_of(0, first))
    control.reported()
    control.came(marks_of(0, 17, 18, 19))
    step(control, *range(6, 30))
    (text,) = control.missing(is_over=True)
    assert text.startswith(
        "iterations 26 to 29 are not captured whole: there are no marks of 27 to 29 of rank 0"
    )
