"""What a path means: a session, one that is just starting, a job of several machines, a log."""

from __future__ import annotations

import fcntl
import gzip
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.analysis import job
from flagscale_perf.analysis.job import PERIOD_S, WAIT_S, begun, open_session, sessions_below
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import RunEnd, RunHeader
from flagscale_perf.spine.session import file_names
from flagscale_perf.store import run_file
from tests.fakes import make_event, make_header, make_step
from tests.trace_runs import MS, SECOND, START_WALL_NS, Job, lines_of_call, make_trace_header

NAME = "perf_records_20240129_103000.jsonl"
SESSIONS = ["20240129_103000", "20240129_103000_2", "20240129_103000_10"]


def write_run(path: Path, *lines: bytes) -> Path:
    path.write_bytes(b"".join(lines))
    return path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for session_id in SESSIONS:
        write_run(tmp_path / file_names(session_id)["records"], encode(make_header(session_id)))
    write_run(tmp_path / "perf_records_zzz.jsonl", b"not ours")
    return tmp_path


def test_of_a_directory_the_newest_session_is_meant(directory: Path) -> None:
    assert open_session(directory).path.name == "perf_records_20240129_103000_10.jsonl"


def test_or_the_one_asked_for(directory: Path) -> None:
    assert open_session(directory, SESSIONS[1]).path.name == "perf_records_20240129_103000_2.jsonl"


def test_a_file_is_itself(directory: Path) -> None:
    path = directory / "perf_records_20240129_103000.jsonl"
    assert open_session(path).path == path


def test_what_is_not_there_is_named_with_the_cure(
    directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.raises(PerfError) as caught:
        open_session(directory, "20240129_103000_3")
    assert (
        str(caught.value)
        == f"no session '20240129_103000_3' in '{directory}'; there are {', '.join(SESSIONS)}"
    )
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(PerfError, match="no perf_records_.*; give the directory of --perf-log-dir"):
        open_session(empty)
    with pytest.raises(PerfError, match="does not exist; give the directory of --perf-log-dir"):
        open_session(empty / "nowhere")


@pytest.mark.parametrize(
    "view", ["summary_{}.json", "metrics_{}.log", "metrics_{}.3.log", "intervals_{}.csv"]
)
def test_a_view_stands_for_the_run_file_beside_it(tmp_path: Path, view: str) -> None:
    for session in ("20240129_103000", "20240129_103000_2"):
        path = tmp_path / f"perf_{view.format(session)}"
        path.touch()
        with pytest.raises(PerfError, match=f"made of the run file perf_records_{session}.jsonl, which"):
            open_session(path)
        records = tmp_path / f"perf_records_{session}.jsonl"
        records.write_bytes(encode(make_header(session)))
        assert open_session(path).path == records
    (tmp_path / "perf_realtime.log").touch()
    assert open_session(tmp_path / "perf_realtime.log").path == records


def traced(directory: Path, second: int, host: str, is_whole: bool = True, **changed: object) -> Path:
    """A run file of a traced job without a name: ten seconds, begun so many after half past ten."""
    job, wall_ns = Job(), START_WALL_NS + second * SECOND
    job.put(job.process("P", 1), 10 * SECOND - 4 * MS, range(8))
    if is_whole:
        job.records.append(RunEnd("completed", wall_ns + 10 * SECOND, 0, 0))
    header = make_trace_header(
        f"20240129_1030{second:02d}",
        host=host,
        start_wall_ns=wall_ns,
        **{"boot_id": f"of {host}", "facts": {"job": ""}} | changed,
    )
    directory.mkdir(parents=True, exist_ok=True)
    return job.write(directory, header, None)


def _mates(path: Path) -> list[Path]:
    return [file.path for file in open_session(path).files[1:]]


def test_what_other_machines_wrote_at_the_same_time_belongs_to_a_run(tmp_path: Path) -> None:
    here = traced(tmp_path, 20, "node0")
    beside = traced(tmp_path, 22, "node1", is_whole=False)
    copied = traced(tmp_path / "node2", 25, "node2")
    container = traced(tmp_path, 21, "node0")  # it cannot see the processes outside of it
    for other in (
        traced(tmp_path, 5, "node1"),  # over at 15, though its file is as new as the others
        traced(tmp_path, 1, "node3", is_whole=False),  # killed at 11
        traced(tmp_path, 40, "node1"),
        traced(tmp_path, 23, "node1", facts={"job": "another"}),
        traced(tmp_path, 24, "node1", instrument="profile"),
        traced(tmp_path / "node2" / "deeper", 26, "node2"),
    ):
        assert here not in _mates(other)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / here.name).write_bytes(here.read_bytes())
    assert _mates(here) == [container, beside, copied]
    assert _mates(beside) == [here, container, copied]


def test_a_run_is_the_same_whichever_of_its_files_is_given(tmp_path: Path) -> None:
    """Of a job that began anew with 1 s between the clocks of its machines, and of one whose machine did."""
    first = [traced(tmp_path / "anew", second, f"node{place}") for place, second in enumerate((10, 13))]
    again = [traced(tmp_path / "anew", second, f"node{place}") for place, second in enumerate((22, 25))]
    lasting, died, came = (
        traced(tmp_path / "one", second, host)
        for second, host in ((14, "node0"), (10, "node1"), (22, "node1"))
    )
    for files in (first, again, [lasting, came], [died]):
        listed = next(one for one in sessions_below(tmp_path).sessions if files[-1] in one.paths)
        for paths in (listed.paths, *(open_session(file).paths for file in files)):
            assert sorted(paths) == files
    beside = "run files of this job that overlap with these and are a session of their own: 1, the first "
    assert open_session(tmp_path / "one").aside == [beside + died.name]
    assert open_session(died).reading.remarks == [beside + lasting.name]


def test_files_that_may_be_of_further_machines_are_named(tmp_path: Path) -> None:
    here, other = traced(tmp_path, 20, "node0"), traced(tmp_path, 22, "node1")
    other.write_bytes(b"")
    os.utime(other, (0, 0))
    (why,) = open_session(tmp_path).aside
    assert why.startswith(
        f"run files beside it that cannot be read and may be of further machines: 1, the first {other.name}: "
    )
    assert open_session(here).again().reading.remarks == [why]
    write_run(tmp_path / NAME, encode(make_header()))
    assert open_session(tmp_path / NAME).aside == []  # a training's one file is of all machines


def test_of_a_job_the_files_are_looked_for_as_in_a_list(tmp_path: Path) -> None:
    here, other = traced(tmp_path, 20, "node0"), traced(tmp_path / "below", 22, "node1")
    (tmp_path / "link").symlink_to(tmp_path / "below")
    (tmp_path / ".hidden").mkdir()
    traced(tmp_path / ".hidden", 23, "node2")
    assert open_session(here).paths == sessions_below(tmp_path).sessions[0].paths == [here, other]


def test_the_end_of_each_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for second in range(0, 60, 12):
        traced(tmp_path, second, "node0")
    read = list[Path]()
    last_record = run_file.last_record

    def noted(path: Path, header: RunHeader) -> tuple[int, bool]:
        read.append(path)
        return last_record(path, header)

    monkeypatch.setattr(run_file, "last_record", noted)
    assert (len(sessions_below(tmp_path).sessions), len(read), len({*read})) == (5, 5, 5)


def test_sessions_of_other_instruments_are_called_as_their_files_are(tmp_path: Path) -> None:
    header = replace(make_header(), start_wall_ns=START_WALL_NS + 60 * SECOND)
    newest = write_run(tmp_path / NAME, encode(header))
    traced(tmp_path, 20, "node0").rename(tmp_path / "perf_records_20240129_120000.jsonl")
    found = job.Job(tmp_path)
    assert (found.session().path, found.others(found.session())) == (newest, {"trace": "20240129_120000"})


def test_a_run_of_no_job_stands_alone(directory: Path) -> None:
    assert _mates(open_session(directory).path) == []


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
    monkeypatch.setattr(job.time, "monotonic", one.monotonic)
    monkeypatch.setattr(job.time, "sleep", one.sleep)
    return one


@pytest.fixture
def said() -> list[str]:
    return []


def test_what_is_there_is_read_at_once(tmp_path: Path, clock: Clock, said: list[str]) -> None:
    (tmp_path / NAME).write_bytes(encode(make_header()) + encode(make_step(1)))
    for path in (tmp_path, tmp_path / NAME, tmp_path / "nowhere"):
        begun(path, None, said.append)
    (tmp_path / NAME).write_bytes(encode(make_header()))  # killed before its first iteration
    begun(tmp_path, None, said.append)
    (tmp_path / NAME).write_bytes(b"no run file")
    begun(tmp_path, None, said.append)
    assert (said, clock.now_s) == ([], 0.0)


def test_an_old_directory_without_runs_is_not_waited_for(
    tmp_path: Path, clock: Clock, said: list[str]
) -> None:
    os.utime(tmp_path, (0, 0))
    begun(tmp_path, None, said.append)
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
        begun(tmp_path, None, said.append)
    assert said == [f"'{tmp_path}' is new and has no run yet: waiting for its first iteration, 10 s at most"]
    assert clock.now_s == pytest.approx(4 * PERIOD_S)


def test_it_is_not_waited_for_longer_than_said(tmp_path: Path, clock: Clock, said: list[str]) -> None:
    path = tmp_path / NAME
    path.touch()
    begun(path, None, said.append)
    with path.open("ab", buffering=0) as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        writer.write(encode(make_header()))
        begun(tmp_path, None, said.append)
    begun(tmp_path, None, said.append)  # it was killed: nothing more will come
    assert [line.split(":")[0] for line in said] == [
        f"'{path}' is new and empty",
        "session 20240129_103000 is just starting",
    ]
    assert clock.now_s == pytest.approx(2 * WAIT_S, abs=1)


def test_where_a_first_run_may_begin(tmp_path: Path) -> None:
    run = tmp_path / "outputs/logs" / NAME
    run.parent.mkdir(parents=True)
    assert [job.Job(path).is_without_run for path in (tmp_path, tmp_path / "new", run.parent)] == [
        True,
        True,
        True,
    ]
    run.touch()
    assert not any(job.Job(path).is_without_run for path in (tmp_path, run.parent, run))
    assert [job.Job(tmp_path / path).is_without_run for path in ("a/b", "typo.jsonl")] == [False, False]


def test_a_run_file_with_another_name_is_not_waited_for(tmp_path: Path) -> None:
    copy = tmp_path / "perf_records_of_mine.jsonl"
    write_run(copy, encode(make_header()))
    assert job.Job(tmp_path).awaited is None
    assert open_session(tmp_path).path == copy


def test_a_file_without_a_name_is_of_a_training(tmp_path: Path) -> None:
    write_run(tmp_path / NAME, encode(make_header()))
    assert open_session(tmp_path).instrument == "training"


def test_a_log_is_of_the_instrument_whose_title_it_has(tmp_path: Path) -> None:
    (tmp_path / "any.log").write_text("ZeroMQ Performance Log - Transport: IPC\n")
    session = open_session(tmp_path / "any.log")
    assert (session.instrument, session.logs, session.files) == ("rpc", [tmp_path / "any.log"], [])
    with pytest.raises(PerfError, match=r"any.log:1: its first line is no JSON object, .* is not a run file"):
        _ = session.header


def test_a_log_with_an_instruments_lines_is_of_it_whatever_stands_before(tmp_path: Path) -> None:
    log = tmp_path / "training.log"
    log.write_text("step 1\n" * 1000 + "\n".join(lines_of_call(before="(W pid=1) ")) + "\n")
    packed = tmp_path / "old.log.1.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    for path in (log, packed, tmp_path):
        session = open_session(path)
        assert (session.instrument, session.logs) == ("trace", [path])


def test_a_run_file_comes_before_the_logs_beside_it(tmp_path: Path) -> None:
    (tmp_path / "tq_trace_7.log").write_text("\n".join(lines_of_call()))
    run = write_run(tmp_path / NAME, encode(make_header()))
    assert open_session(tmp_path).path == run


def test_all_sessions_of_a_directory_and_what_cannot_be_read(tmp_path: Path) -> None:
    write_run(tmp_path / NAME, encode(make_header()))
    write_run(tmp_path / "perf_records_20240129_110000.jsonl")
    found = job.Job(tmp_path).sessions()
    assert ([one.path.name for one in found.sessions], len(found.unread)) == ([NAME], 1)
    with pytest.raises(PerfError, match="cannot read"):
        job.Job(tmp_path.parent / "nothing").sessions()
