"""The run file has the whole run, and is locked while it is written."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from flagscale_perf.sinks.run_file import RecordsSink
from tests.fakes import make_context, sample_run
from tests.golden import golden


def test_a_whole_run_and_its_lock(tmp_path: Path) -> None:
    header, *records = sample_run()
    sink = RecordsSink.open(make_context(header, tmp_path, print))
    for record in (header, *records):
        sink.write(record)
    sink.flush()
    path = tmp_path / "perf_records_20240129_103000.jsonl"
    assert path.read_text() == golden("perf_records.jsonl")
    with path.open("rb") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        sink.close()
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
