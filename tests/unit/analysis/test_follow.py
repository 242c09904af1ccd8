"""A file that grows, is cut, is removed and is followed by another."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.analysis import follow as follow_module
from flagscale_perf.analysis.follow import Follower
from flagscale_perf.analysis.session import Course
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import open_locked
from flagscale_perf.spine.jsonl import MAX_LINE_BYTES, encode
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.store import evidence
from flagscale_perf.trace.records import OperationRecord
from flagscale_perf.training.records import StepRecord
from tests.every_instrument import write_job
from tests.fakes import make_header, make_step
from tests.profile_runs import make_profile, make_profile_header

SESSION, NEXT = "20240129_103000", "20240129_103000_2"


def path_of(directory: Path, session_id: str = SESSION) -> Path:
    return directory / f"perf_records_{session_id}.jsonl"


def append(path: Path, *content: bytes) -> None:
    with path.open("ab") as file:
        file.writelines(content)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    append(path_of(tmp_path), encode(make_header()), encode(make_step(1)))
    return path_of(tmp_path)


@pytest.fixture
def follower(path: Path) -> Iterator[Follower]:
    made = Follower(path.parent)
    yield made
    made.close()


def polled(follower: Follower) -> list[object]:
    """Session ids of headers, iterations of steps."""
    records = list(follower.poll())
    assert all(isinstance(record, RunHeader | StepRecord) for record in records)
    return [record.session_id if isinstance(record, RunHeader) else record.iteration for record in records]


def test_every_record_comes_once(follower: Follower, path: Path) -> None:
    assert polled(follower) == [SESSION, 1]
    assert polled(follower) == []
    append(path, encode(make_step(2)), encode(make_step(3)))
    assert polled(follower) == [2, 3]


def test_a_line_that_is_half_written_comes_when_it_is_whole(follower: Follower, path: Path) -> None:
    polled(follower)
    line = encode(make_step(2))
    append(path, line[:50])
    assert polled(follower) == []
    append(path, line[50:], b"rubbish\n")
    assert (polled(follower), follower.skipped) == ([2], 1)


def test_an_endless_line_is_left_out_in_bounded_memory(follower: Follower, path: Path) -> None:
    append(path, b"x" * (3 * MAX_LINE_BYTES), b"\n", encode(make_step(2)))
    assert polled(follower) == [SESSION, 1, 2]
    assert len(follower._files[0]._rest) == 0


def test_of_a_long_file_the_end_is_read(
    follower: Follower, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(path, *(encode(make_step(n)) for n in range(2, 101)))
    monkeypatch.setattr(follow_module, "TAIL_BYTES", len(encode(make_step(99)) + encode(make_step(100))) + 10)
    assert polled(follower) == [SESSION, 99, 100]
    assert (follower.is_partial, follower.skipped) == (True, 0)


def test_it_goes_over_to_a_newer_session_and_stays_with_one_that_was_asked_for(
    follower: Follower, path: Path
) -> None:
    asked_for, one_file = Follower(path.parent, SESSION), Follower(path)
    first = [polled(each) for each in (follower, asked_for, one_file)]
    append(path_of(path.parent, NEXT))
    assert polled(follower) == []  # its writer has only just made it
    append(path_of(path.parent, NEXT), encode(make_header(NEXT)), encode(make_step(1)))
    assert (first, polled(follower), polled(asked_for), polled(one_file)) == (
        [[SESSION, 1]] * 3,
        [NEXT, 1],
        [],
        [],
    )
    asked_for.close()
    one_file.close()


def test_it_stays_with_its_instrument(follower: Follower, path: Path) -> None:
    assert polled(follower) == [SESSION, 1]
    make_profile().write(path.parent, make_profile_header("20240129_103001"))
    append(path, encode(make_step(2)))
    assert polled(follower) == [2]
    assert follower.path == path


def test_it_begins_with_the_newest_that_fits(path: Path) -> None:
    profile = make_profile().write(path.parent, make_profile_header("20240129_103001"))
    anything, training = (
        Follower(path.parent),
        Follower(path.parent, fits=lambda h: h.instrument != "profile"),
    )
    assert (anything.path, training.path) == (profile, path)
    nothing = Follower(path.parent, fits=lambda header: False)
    assert nothing.path == profile


def test_a_file_begun_anew_is_read_anew(follower: Follower, path: Path) -> None:
    polled(follower)
    path.unlink()
    assert polled(follower) == []
    append(path, encode(make_header()), encode(make_step(7)))
    assert polled(follower) == [SESSION, 7]


def test_a_lock_is_a_writer_and_so_is_growth(
    follower: Follower, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    polled(follower)
    assert follower.has_writer() is None
    held = open_locked(path)
    assert follower.has_writer() is True
    os.close(held)
    assert follower.has_writer() is None
    append(path, encode(make_step(2)))
    polled(follower)
    assert follower.has_writer() is True
    monkeypatch.setattr(evidence, "HEARTBEAT_NS", 0)
    assert follower.has_writer() is None


def test_a_second_header_ends_what_is_followed(follower: Follower, path: Path) -> None:
    polled(follower)
    append(path, b'{"kind":"st' + encode(make_header("20240129_114500")) + encode(make_step(2)))
    assert (polled(follower), follower.is_joined) == ([], True)
    append(path, encode(make_step(3)))
    assert polled(follower) == []


def test_a_removed_file_has_no_writer(follower: Follower, path: Path) -> None:
    polled(follower)
    path.unlink()
    assert not follower.has_writer()


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PerfError, match="does not exist"):
        Follower(tmp_path / "none")
    (tmp_path / "x.txt").write_text("hello\n")
    with pytest.raises(PerfError, match="this is not a run file"):
        list(Follower(tmp_path / "x.txt").poll())


def test_another_machine_of_the_job_joins_and_keeps_its_own_processes(tmp_path: Path) -> None:
    first, second = write_job("trace", tmp_path, ("completed", "completed"))
    directory = tmp_path / "run"
    directory.mkdir()
    shown = Follower(first.rename(directory / first.name).parent)
    course, counts = Course(), []
    for path in (None, second):
        if path is not None:
            path.rename(directory / path.name)
        records = list(shown.poll())
        for record in records:
            course.add(record)
        counts.append(sum(isinstance(record, OperationRecord) for record in records))
    shown.close()
    assert (counts, shown.path.name, course.state(False)) == ([20, 20], first.name, "completed")
    titles = ("Rollout 101", "Train 102")
    assert [course.label(number) for number in sorted(course.processes)] == [
        *titles,  # as they were called before there was another machine
        *(f"{title}@node1" for title in titles),
    ]


def test_a_machine_that_began_before_the_other_was_seen_to_go_on_joins_then(tmp_path: Path) -> None:
    header = replace(make_header(), facts={"job": "pretrain"})
    later = {"start_wall_ns": header.start_wall_ns + 60 * NS_PER_S, "host": "node1", "boot_id": "another"}
    append(path_of(tmp_path), encode(header), encode(make_step(1)))
    append(path_of(tmp_path, NEXT), encode(replace(header, session_id=NEXT, **later)), encode(make_step(1)))
    followed = Follower(path_of(tmp_path))
    assert polled(followed) == [SESSION, 1]  # whether this is still written cannot be known here
    append(path_of(tmp_path), encode(make_step(2)._replace(start_ns=100 * NS_PER_S)))
    assert polled(followed) == [2, NEXT, SESSION, NEXT, 1]
    followed.close()


def test_a_machine_whose_file_is_removed_meanwhile_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = write_job("trace", tmp_path, ("completed", "completed"))
    followed = Follower(first)
    assert sum(isinstance(record, OperationRecord) for record in followed.poll()) == 40

    def removed(*_: object) -> None:
        raise PerfError("cannot read it: No such file or directory")

    monkeypatch.setattr(follow_module.Job, "near", removed)
    assert not any(isinstance(record, OperationRecord) for record in followed.poll())
    followed.close()
