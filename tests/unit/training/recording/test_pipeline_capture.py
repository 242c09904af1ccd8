"""A capture on its way through the drain: what it lacks stands in the run file and on the console."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.spine.records import EventRecord
from flagscale_perf.spine.ring import Ring
from flagscale_perf.training.records import CapturedRecord, CaptureRecord
from tests.fakes import make_marks, make_step
from tests.unit.writer.test_drain import die, finish, make_drain, put, records_in, ring, said

__all__ = ["ring", "said"]  # fixtures


def put_with_marks(ring: Ring, *iterations: int) -> None:
    for iteration in iterations:
        ring.put(make_marks(iteration))
        ring.put(make_step(iteration))


def captured_in(directory: Path) -> list[tuple[int, int]]:
    return [(each.rank, each.iteration) for each in records_in(directory) if isinstance(each, CapturedRecord)]


def reported_in(directory: Path) -> list[str]:
    """Events of a capture that is not whole."""
    events = (each for each in records_in(directory) if isinstance(each, EventRecord))
    return [each.text for each in events if each.name == "capture"]


def test_steps_without_marks_are_reported_in_the_run_file_and_at_once(
    ring: Ring, tmp_path: Path, said: list[str]
) -> None:
    drain = make_drain(ring, tmp_path, said, perf_capture_steps=3)
    put_with_marks(ring, 1)
    drain.cycle()
    put(ring, 31, 32)  # their phases are switched off, or their marks are lost
    put_with_marks(ring, 33)
    finish(ring, drain)
    (window,) = [record for record in records_in(tmp_path) if isinstance(record, CaptureRecord)]
    assert (window.first_iteration, window.iteration) == (32, 34)
    assert captured_in(tmp_path) == [(0, 33)]
    (text,) = reported_in(tmp_path)
    assert text.startswith(
        "iterations 32 to 34 are not captured whole: iteration 34 did not come, as the training ended at"
        " 33, and there are no marks of 32 of rank 0; 32, 33 of ranks 1 to 7: "
    )
    assert [line for line in said if text in line] == [f"flagscale_perf: {text}"]


def test_what_an_earlier_writer_has_captured_is_not_missed(
    ring: Ring, tmp_path: Path, said: list[str]
) -> None:
    first = make_drain(ring, tmp_path, said, perf_capture_steps=2)
    put_with_marks(ring, 1)
    first.cycle()
    put_with_marks(ring, 32)
    first.cycle()
    die(first)
    second = make_drain(ring, tmp_path, said, anchor=first._task.anchor, perf_capture_steps=2)
    put_with_marks(ring, 33)
    finish(ring, second)
    assert captured_in(tmp_path) == [(0, 32), (0, 33)]
    (text,) = reported_in(tmp_path)
    assert text.startswith(
        "iterations 32 to 33 are not captured whole: there are no marks of 32, 33 of ranks 1"
    )
