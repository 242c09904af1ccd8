"""What is known of a run file's writer, and what is not; real processes: tests/processes/test_liveness.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flagscale_perf.analysis.evidence import not_known
from flagscale_perf.analysis.run_file import RunFile
from flagscale_perf.spine.clock import process_start_ns
from flagscale_perf.spine.files import open_locked
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import RunEnd
from tests.fakes import SECOND, make_header, make_step
from tests.run_files import left_behind, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "perf_records_20240129_103000.jsonl", [make_step(1)])


def test_another_machines_is_not_known_until_it_grows_or_ends(path: Path) -> None:
    assert RunFile(path).is_live() is None
    with path.open("ab") as file:
        file.write(encode(make_step(2)))
    assert RunFile(path).is_live() is True
    with path.open("ab") as file:
        file.write(encode(RunEnd("completed", 1, 2, 0)))
    assert RunFile(path).is_live() is False


def test_a_process_of_this_machine_that_is_gone_was_killed_and_a_lock_goes_before(path: Path) -> None:
    assert RunFile(left_behind(path)).is_live() is False
    held = open_locked(path)
    assert RunFile(path).is_live() is True
    os.close(held)
    copy = path.with_name("copy.jsonl")
    copy.write_bytes(path.read_bytes())
    assert RunFile(copy).is_live() is None


def test_a_pid_that_another_process_has_now_was_killed(path: Path) -> None:
    assert (process_start_ns() or 0) > 0  # the header's start is at the clock's zero, before this process
    assert RunFile(left_behind(path, os.getpid())).is_live() is False


def test_it_is_said_since_when_nothing_came(path: Path) -> None:
    run = RunFile(path)
    last_ns = run.last_record_ns()
    assert last_ns > make_header().start_wall_ns
    said = "no end recorded, last record 3.0 s ago; whether it still runs cannot be known here"
    assert not_known(last_ns, last_ns + 3 * SECOND) == said
    assert not_known(last_ns, last_ns - SECOND).startswith("no end recorded, last record 0.0 s ago")
