"""`flagscale-perf capture`: asks a live run, says what it answered, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flagscale_perf.cli import asking, main
from flagscale_perf.spine.files import open_locked
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import Record
from flagscale_perf.training.records import CaptureRecord
from tests.fakes import make_header, make_step
from tests.profile_runs import make_profile, make_profile_header
from tests.run_files import left_behind

LONG_S = 60.0


@contextmanager
def live_run(tmp_path: Path, breakdown: bool = True) -> Iterator[tuple[Path, int]]:
    """A run file that somebody writes, with its descriptor."""
    header = make_header(perf_breakdown=breakdown)
    path = tmp_path / f"perf_records_{header.session_id}.jsonl"
    fd = open_locked(path)
    try:
        write(fd, header, CaptureRecord(1, 2, []), make_step(1))
        yield path, fd
    finally:
        os.close(fd)


def write(fd: int, *records: Record) -> None:
    os.write(fd, b"".join(map(encode, records)))


def files(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("perf_records"))


def test_it_says_what_the_run_has_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_profile().write(tmp_path, make_profile_header("20240129_103001"))  # of the same run, and newer
    with live_run(tmp_path) as (path, fd):
        asked: list[object] = []
        is_over = threading.Event()

        def answer() -> None:
            while not is_over.wait(0.01):
                for request in tmp_path.glob("perf_capture_*.json"):
                    asked.append(json.loads(request.read_text()))
                    request.unlink()
                    write(fd, CaptureRecord(41, 45, []))

        thread = threading.Thread(target=answer)
        thread.start()
        assert main(["capture", str(tmp_path), "--steps", "5"]) == 0
        is_over.set()
        thread.join()
        assert asked == [{"steps": 5}]
        shown = f"iterations 41 to 45 of every rank are captured into {path} when they come\n"
        assert (capsys.readouterr().out, files(tmp_path)) == (shown, [])


def refusal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> str:
    assert main(["capture", str(tmp_path), "--steps", "5"]) == 2
    assert files(tmp_path) == []
    return capsys.readouterr().err


def test_a_run_that_is_over_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with live_run(tmp_path) as (path, _):
        pass
    left_behind(path)
    assert (
        refusal(capsys, tmp_path)
        == f"no training writes {str(path)!r} now; give the directory of a live one\n"
    )


def test_a_run_without_phases_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with live_run(tmp_path, breakdown=False):
        assert "it was started without --perf-breakdown" in refusal(capsys, tmp_path)


def test_a_run_that_does_not_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "WAIT_S", 0.0)
    with live_run(tmp_path):
        assert "has not answered within 0 s: it is not training now" in refusal(capsys, tmp_path)


@pytest.mark.parametrize("steps", ["0", "1001", "-1", "five", ""])
def test_other_than_so_many_steps_are_refused(steps: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as end:
        main(["capture", str(tmp_path), f"--steps={steps}"])
    assert end.value.code == 2
