"""The run files of several machines as one."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from flagscale_perf.analysis.clocks import clock_of
from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.session import moved
from flagscale_perf.analysis.timeline import Item
from flagscale_perf.profile.analysis.timeline import timeline
from flagscale_perf.profile.records import StepRecord
from flagscale_perf.spine.peers.records import ProcessRecord
from flagscale_perf.store.decoder import Chunk
from flagscale_perf.store.run_file import RunFile
from tests.every_instrument import JOBS, write_job
from tests.profile_runs import MS, make_profile, make_profile_header


def two_machines(directory: Path) -> Path:
    """Both begin at 10:30:00, where the clock of the first stands at 0 and that of the second at 1 s."""
    path = make_profile().write(directory)
    header = make_profile_header("20240129_103001", host="node1", boot_id="b", start_mono_ns=1000 * MS)
    make_profile().write(directory, header)
    return path


def test_one_file_is_left_as_it_is(tmp_path: Path) -> None:
    path = make_profile().write(tmp_path)
    assert list(open_session(path)) == list(RunFile(path))


def test_processes_are_told_apart_and_their_marks_are_on_one_clock(tmp_path: Path) -> None:
    job = open_session(two_machines(tmp_path))
    records = list(job)
    assert [one.number for one in records if isinstance(one, ProcessRecord)] == [1, 2, 3, 4]
    starts: dict[int, list[int]] = {}
    for one in records:
        if isinstance(one, StepRecord):
            starts.setdefault(one.process, []).append(one.start_ns // MS)
    assert {process: each[0] for process, each in starts.items()} == {1: 0, 2: 0, 3: -1000, 4: -1000}
    assert [(file.header.host, number) for file, number in map(job.origin, (1, 2, 3, 4))] == [
        ("node0", 1),
        ("node0", 2),
        ("node1", 1),
        ("node1", 2),
    ]


def test_all_are_drawn_each_on_its_host(tmp_path: Path) -> None:
    job = open_session(two_machines(tmp_path))
    first = {
        (item.track.process.host, item.track.process.rank): item.begin_ns // MS
        for item in timeline(job).items(job)
        if isinstance(item, Item) and item.name == "train 20"
    }
    assert first == {("node0", 0): 0, ("node0", 1): 0, ("node1", 0): -1000, ("node1", 1): -1000}


def test_how_it_ended_is_known_without_reading_it_first(tmp_path: Path) -> None:
    path = make_profile().write(tmp_path)
    assert open_session(path).state == "completed"
    assert open_session(path).reading.records["profile_step"] == len(
        list(open_session(path).records(StepRecord))
    )


@pytest.mark.parametrize("name", JOBS)
def test_records_of_two_machines_are_the_same_in_columns_and_one_by_one(name: str, tmp_path: Path) -> None:
    write_job(name, tmp_path, ("completed", "completed"))
    session = open_session(tmp_path)
    first, second = (list(RunFile(file.path)) for file in session.files)
    taken = max((each.number for each in first if isinstance(each, ProcessRecord)), default=0)
    move = session.clocks.mover(clock_of(session.files[1].header))
    alone = [*first, *(moved(each, taken, move) for each in second)]
    assert list(session) == alone
    parts = session.chunks({*map(type, alone)} - {ProcessRecord})
    records = (part.records() if isinstance(part, Chunk) else [part] for part in parts)
    assert list(chain.from_iterable(records)) == alone
