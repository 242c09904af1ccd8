"""What is known of a run file's writer, and what is not; real processes: tests/processes/test_liveness.py."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from flagscale_perf.spine import files
from flagscale_perf.spine.clock import process_start_ns
from flagscale_perf.spine.files import open_locked
from flagscale_perf.spine.jsonl import dump, encode
from flagscale_perf.spine.records import RunEnd
from flagscale_perf.store import evidence
from flagscale_perf.store.evidence import not_known
from flagscale_perf.store.run_file import RunFile
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


def edit(path: Path, **changed: object) -> None:
    first, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(dump(json.loads(first) | changed).encode() + b"\n" + rest)
    evidence._looks.clear()  # it has not grown


def test_of_an_earlier_boot_it_was_killed_unless_something_wrote_it_a_moment_ago(path: Path) -> None:
    edit(left_behind(path, os.getpid()), boot_id="00000000-0000-4000-8000-000000000000", pid_namespace=1)
    assert RunFile(path).is_live() is None  # by another machine of this name
    os.utime(path, (0, 0))
    assert RunFile(path).is_live() is False
    edit(path, host="node7")
    os.utime(path, (0, 0))
    assert RunFile(path).is_live() is None


def test_of_an_earlier_version_a_free_lock_and_a_pid_that_is_gone_tell(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(left_behind(path), pid_namespace=None, inode=None)
    assert RunFile(path).is_live() is False
    held = open_locked(path)
    assert RunFile(path).is_live() is True
    os.close(held)
    monkeypatch.setattr(files, "is_locked", lambda _: None)
    assert RunFile(path).is_live() is None


def test_it_is_said_since_when_nothing_came(path: Path) -> None:
    run = RunFile(path)
    last_ns = run.last_record_ns()
    assert last_ns > make_header().start_wall_ns
    said = "no end recorded, last record 3.0 s ago; whether it still runs cannot be known here"
    assert not_known(last_ns, last_ns + 3 * SECOND) == said
    assert not_known(last_ns, last_ns - SECOND).startswith("no end recorded, last record 0.0 s ago")


def test_of_many_files_only_the_last_looks_are_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "_looks", {})
    found = os.stat(path)
    for inode in range(1000):
        evidence._ns_since_growth(os.stat_result((*found[:1], inode, *found[2:])))
        evidence._ns_since_growth(found)  # looked at again and again
    assert len(evidence._looks) == 256
    assert {(found.st_dev, found.st_ino), (found.st_dev, 999)} <= evidence._looks.keys()
    assert (found.st_dev, 0) not in evidence._looks
