"""Windows of raw marks: decided once for all ranks, kept whole, and given back as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.device.marks import END, start_of, stop_of
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.jsonl import decode, encode
from flagscale_perf.training.capture import (
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
from tests.fakes import MS, make_marks, make_step

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
    join = MarksJoin(capture)
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
    join = MarksJoin(capture)
    first, *_ = in_slots(1, MARKS * 20)
    join.take(first)
    join.take(make_step(1))
    assert capture.take() == []


@pytest.mark.parametrize("content", [None, 7, {}, {"capture": 1}, {"capture": [1]}, {"capture": ["1", 2]}])
def test_what_is_no_window_is_an_empty_one(content: Any) -> None:
    assert 1 not in window_of(content)
    assert 1 in window_of({"capture": [1, 2]})


def make_control(tmp_path: Path, steps: int | None = None) -> tuple[CaptureControl, list[Any]]:
    announced: list[Any] = []
    return CaptureControl(tmp_path / "request", steps, announced.append), announced


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


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"\xff", b"[" * 5000, json.dumps({"steps": 0}).encode(),
                json.dumps({"steps": MAX_STEPS + 1}).encode(), b'{"steps": "3"}', b'{"steps": true}'],
)  # fmt: skip
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
