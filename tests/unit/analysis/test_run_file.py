"""Run files found and read, damaged and hostile ones too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flagscale_perf.analysis.run_file import MAX_BAD_LINES, RunFile, find_run_file, mates_of
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import open_locked
from flagscale_perf.spine.jsonl import BadLine, encode
from flagscale_perf.spine.records import RunEnd
from flagscale_perf.spine.session import file_names
from tests.fakes import make_header, make_step, sample_run
from tests.trace_runs import MS, SECOND, START_WALL_NS, Job, make_trace_header

MALFORMED = "JSON is malformed: invalid character (byte 0)"
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
    assert find_run_file(directory).name == "perf_records_20240129_103000_10.jsonl"


def test_or_the_one_asked_for(directory: Path) -> None:
    assert find_run_file(directory, SESSIONS[1]).name == "perf_records_20240129_103000_2.jsonl"


def test_a_file_is_itself(directory: Path) -> None:
    path = directory / "perf_records_20240129_103000.jsonl"
    assert find_run_file(path) == path


def test_what_is_not_there_is_named_with_the_cure(
    directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.raises(PerfError) as caught:
        find_run_file(directory, "20240129_103000_3")
    assert (
        str(caught.value)
        == f"no session '20240129_103000_3' in '{directory}'; there are {', '.join(SESSIONS)}"
    )
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(PerfError, match="no perf_records_.*; give the directory of --perf-log-dir"):
        find_run_file(empty)
    with pytest.raises(PerfError, match="does not exist; give the directory of --perf-log-dir"):
        find_run_file(empty / "nowhere")


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


@pytest.mark.parametrize(
    "view", ["summary_{}.json", "metrics_{}.log", "metrics_{}.3.log", "intervals_{}.csv"]
)
def test_a_view_stands_for_the_run_file_beside_it(tmp_path: Path, view: str) -> None:
    for session in ("20240129_103000", "20240129_103000_2"):
        path = tmp_path / f"perf_{view.format(session)}"
        path.touch()
        with pytest.raises(PerfError, match=f"made of the run file perf_records_{session}.jsonl, which"):
            find_run_file(path)
        records = tmp_path / f"perf_records_{session}.jsonl"
        records.touch()
        assert find_run_file(path) == records
    (tmp_path / "perf_realtime.log").touch()
    assert find_run_file(tmp_path / "perf_realtime.log") == records


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
        assert here not in mates_of(other)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / here.name).write_bytes(here.read_bytes())
    assert mates_of(here) == [container, beside, copied]
    assert mates_of(beside) == [here, container, copied]


def test_a_run_of_no_job_stands_alone(directory: Path) -> None:
    assert mates_of(find_run_file(directory)) == []
