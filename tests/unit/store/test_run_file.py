"""Run files read, damaged and hostile ones too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import open_locked
from flagscale_perf.spine.jsonl import BadLine, encode
from flagscale_perf.store.run_file import MAX_BAD_LINES, RunFile
from tests.fakes import make_header, make_step, sample_run

MALFORMED = "JSON is malformed: invalid character (byte 0)"


def write_run(path: Path, *lines: bytes) -> Path:
    path.write_bytes(b"".join(lines))
    return path


def test_all_records_of_a_whole_file(tmp_path: Path) -> None:
    records = sample_run()
    run = RunFile(write_run(tmp_path / "run.jsonl", *map(encode, records)))
    assert (run.header, list(run), list(run)) == (records[0], records, records)
    assert (run.bad_lines, run.skipped) == ([], 0)


def test_bad_lines_are_counted_and_the_first_ones_kept(tmp_path: Path) -> None:
    lines = [encode(make_header()), *[b"x\n"] * 30, encode(make_step(1)), b'{"kind"']
    run = RunFile(write_run(tmp_path / "run.jsonl", *lines))
    for _ in range(2):
        assert list(run) == [make_header(), make_step(1)]
        assert (run.skipped, len(run.bad_lines)) == (31, MAX_BAD_LINES)
    assert run.bad_lines[0] == BadLine(2, MALFORMED)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            b"",
            "1: the file is empty; this is not a run file of flagscale_perf, or its run has only just begun",
        ),
        (
            b"hello\n",
            "1: its first line is no JSON object, but 'hello'; this is not a run file of flagscale_perf",
        ),
        (encode(make_header())[:40], "1: cut off; this is not a run file of flagscale_perf"),
        (encode(make_step(1)), "1: a run file begins with its header, this one with another record"),
    ],
)
def test_a_file_that_is_no_run_file_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = write_run(tmp_path / "run.jsonl", content)
    with pytest.raises(PerfError) as caught:
        RunFile(path)
    assert str(caught.value) == f"{path}:{reason}"


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    fifo, link = tmp_path / "fifo", tmp_path / "link"
    os.mkfifo(fifo)
    link.symlink_to("/dev/zero")
    for path in (fifo, link, tmp_path):
        with pytest.raises(PerfError, match="is not a regular file; give a perf_records_"):
            RunFile(path)


def test_a_line_without_end_takes_no_memory(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run.jsonl", encode(make_header()), encode(make_step(1)))
    with path.open("r+b") as file:
        file.truncate(1 << 28)  # a hole of zeros
    run = RunFile(path)
    assert list(run) == [make_header(), make_step(1)]
    assert [bad.reason for bad in run.bad_lines] == ["longer than 1048576 bytes"]


def test_a_writer_that_lives_is_noticed(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run.jsonl", encode(make_header()))
    run = RunFile(path)
    assert not run.is_live()
    held = open_locked(path)
    assert run.is_live()
    os.close(held)
    assert not run.is_live()
