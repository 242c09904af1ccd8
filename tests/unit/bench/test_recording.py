"""The run file of experiments: each point is there at once, and what an exception leaves is partial."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.bench.recording import Book, Clock
from flagscale_perf.bench.records import BenchBegun, BenchEnded, BenchFigure, BenchPoint
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.records import ClockRecord, RunEnd
from flagscale_perf.store.run_file import RunFile

CASE = {"op": "copy", "size_bytes": 1024}


def kinds(path: Path) -> list[str]:
    return [type(record).__name__ for record in RunFile(path)]


def test_a_point_is_in_the_file_when_it_is_put(tmp_path: Path) -> None:
    facts = {"machine": "one"}
    with Book.begin(tmp_path, facts) as book, book.part("bandwidth", 2, {"ranks": 2}) as part:
        part.point("time", "s", CASE, [1, 2.5], Clock(7, 8))
        live = RunFile(book.path)
        assert (live.is_live(), live.header.instrument, live.header.facts) == (
            True,
            "bench",
            {"machine": "one"},
        )
        begun, point = list(live)[1:]
        assert (begun.experiment, begun.planned, begun.settings) == ("bandwidth", 2, {"ranks": 2})
        assert point == BenchPoint("bandwidth", "time", "s", CASE, 7, 8, [1.0, 2.5])
        part.value("time", "s", {"op": "nvlink"}, None, "no NVIDIA driver")
    records = list(RunFile(book.path))[3:]
    assert records[0] == BenchFigure("bandwidth", "time", "s", {"op": "nvlink"}, None, "no NVIDIA driver")
    assert (records[1].is_complete, records[1].reason) == (True, "completed")
    assert [type(each) for each in records[1:]] == [BenchEnded, ClockRecord, RunEnd]
    assert (records[3].reason, book.is_partial) == ("completed", False)


def test_an_experiment_that_fails_is_partial_and_keeps_what_it_has(tmp_path: Path) -> None:
    with Book.begin(tmp_path, {}) as book:
        with pytest.raises(PerfError), book.part("bandwidth", 3, {}) as part:
            part.point("time", "s", CASE, [1.0], Clock(1))
            raise PerfError("rank 1 failed")
        with book.part("latency", None, {}):
            pass
    begun, point, ended, second, complete, _, end = list(RunFile(book.path))[1:]
    assert [type(each) for each in (begun, point, second)] == [BenchBegun, BenchPoint, BenchBegun]
    assert (ended.is_complete, ended.reason, complete.is_complete) == (False, "rank 1 failed", True)
    assert (end.reason, book.is_partial) == ("partial", True)


def test_an_interrupt_is_said_as_such(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Book.begin(tmp_path, {}) as book, book.part("bandwidth", 3, {}):
        raise KeyboardInterrupt
    ended, _, end = list(RunFile(book.path))[2:]
    assert (ended.is_complete, ended.reason, end.reason) == (False, "interrupted", "interrupted")


def test_a_timed_block_knows_when_it_was(tmp_path: Path) -> None:
    with Book.begin(tmp_path, {}) as book, book.part("bandwidth", None, {}) as part:
        with part.timing() as clock:
            assert clock.dur_ns == 0
        assert clock.dur_ns > 0


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PerfError, match="-o .*file/below: no run file can be written there"):
        Book.begin(tmp_path / "file" / "below", {})


def test_a_disk_that_refuses_is_said_once_and_tried_again(tmp_path: Path, capsys, monkeypatch) -> None:
    with Book.begin(tmp_path, {}) as book, book.part("bandwidth", 1, {}) as part:
        flush = book._file.flush

        def full() -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(book._file, "flush", full)
        part.point("time", "s", CASE, [1.0], Clock(1))
        part.point("time", "s", CASE, [2.0], Clock(1))
        monkeypatch.setattr(book._file, "flush", flush)
    said = capsys.readouterr().err
    assert said == f"{book.path}: cannot be written (No space left on device); points wait in memory\n"
    assert [each.samples for each in RunFile(book.path) if isinstance(each, BenchPoint)] == [[1.0], [2.0]]
    assert kinds(book.path)[-1] == "RunEnd"
