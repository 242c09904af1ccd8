"""A session that is just starting is waited for, and nothing else is."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from flagscale_perf.analysis import starting
from flagscale_perf.analysis.starting import is_without_run, wait_for_start
from flagscale_perf.spine.jsonl import encode
from tests.fakes import make_event, make_header, make_step

NAME = "perf_records_20240129_103000.jsonl"


class Clock:
    """Time passes only while somebody sleeps; what happens then is done by `events`, one a sleep."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.events: Iterator[object] = iter(())

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        next(self.events, None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    one = Clock()
    monkeypatch.setattr(starting.time, "monotonic", one.monotonic)
    monkeypatch.setattr(starting.time, "sleep", one.sleep)
    return one


@pytest.fixture
def said() -> list[str]:
    return []


def test_what_is_there_is_read_at_once(tmp_path: Path, clock: Clock, said: list[str]) -> None:
    (tmp_path / NAME).write_bytes(encode(make_header()) + encode(make_step(1)))
    for path in (tmp_path, tmp_path / NAME, tmp_path / "nowhere"):
        wait_for_start(path, None, said.append)
    (tmp_path / NAME).write_bytes(encode(make_header()))  # killed before its first iteration
    wait_for_start(tmp_path, None, said.append)
    (tmp_path / NAME).write_bytes(b"no run file")
    wait_for_start(tmp_path, None, said.append)
    assert (said, clock.now_s) == ([], 0.0)


def test_an_old_directory_without_runs_is_not_waited_for(
    tmp_path: Path, clock: Clock, said: list[str]
) -> None:
    os.utime(tmp_path, (0, 0))
    wait_for_start(tmp_path, None, said.append)
    assert (said, clock.now_s) == ([], 0.0)


def test_a_session_that_begins_is_waited_for_to_its_first_iteration(
    tmp_path: Path, clock: Clock, said: list[str]
) -> None:
    path = tmp_path / NAME
    with path.open("ab", buffering=0) as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        path.rename(tmp_path / "aside")

        def begins() -> Iterator[object]:
            """A run file, its header, a remark, and its first iteration."""
            yield (tmp_path / "aside").rename(path)
            yield writer.write(encode(make_header()))
            yield writer.write(encode(make_event()))
            yield writer.write(encode(make_step(1)))

        clock.events = begins()
        wait_for_start(tmp_path, None, said.append)
    assert said == [f"'{tmp_path}' is new and has no run yet: waiting for its first iteration, 10 s at most"]
    assert clock.now_s == pytest.approx(4 * starting.PERIOD_S)


def test_it_is_not_waited_for_longer_than_said(tmp_path: Path, clock: Clock, said: list[str]) -> None:
    path = tmp_path / NAME
    path.touch()
    wait_for_start(path, None, said.append)
    with path.open("ab", buffering=0) as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        writer.write(encode(make_header()))
        wait_for_start(tmp_path, None, said.append)
    wait_for_start(tmp_path, None, said.append)  # it was killed: nothing more will come
    assert [line.split(":")[0] for line in said] == [
        f"'{path}' is new and empty",
        "session 20240129_103000 is just starting",
    ]
    assert clock.now_s == pytest.approx(2 * starting.WAIT_S, abs=1)


def test_where_a_first_run_may_begin(tmp_path: Path) -> None:
    run = tmp_path / "outputs/logs" / NAME
    run.parent.mkdir(parents=True)
    assert [is_without_run(path) for path in (tmp_path, tmp_path / "new", run.parent)] == [True, True, True]
    run.touch()
    assert [is_without_run(path) for path in (tmp_path, run.parent, run)] == [False, False, False]
    assert [is_without_run(tmp_path / path) for path in ("a/b", "typo.jsonl")] == [False, False]
