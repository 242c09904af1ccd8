"""A job's items on one clock: joined by pids, chosen by steps and ranks, arrows with both ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.analysis.drawing import Chosen, Drawing
from flagscale_perf.analysis.job import Job
from flagscale_perf.analysis.timeline import Counter, Item
from flagscale_perf.analysis.whole import Member, Whole
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import Record
from flagscale_perf.training.rank_records import NodeRecord
from tests.fakes import MS, make_facts, make_header, make_interval, make_step
from tests.profile_runs import make_profile, make_profile_header


def job(directory: Path, *records: Record, start_mono_ns: int = 0) -> Whole:
    """A training of two ranks, 25 steps of 100 ms, and the profile of four of them beside it."""
    facts = make_facts(world_size=2, data_parallel=2, tensor_parallel=1)
    header = replace(make_header(facts=facts), pid=4000, start_mono_ns=start_mono_ns)
    node = NodeRecord("node0", [0, 1], [4000, 4001], ["", ""], [0, 0])
    made = [header, node, *(make_step(n) for n in range(1, 26)), make_interval(20), *records]
    (directory / "perf_records_20240129_103000.jsonl").write_bytes(b"".join(map(encode, made)))
    make_profile().write(directory, make_profile_header("20240129_103001"))
    return Job(directory).whole()


def measured(drawing: Drawing) -> Drawing:
    drawing.measure(lambda items: 10 * len(items), None)
    return drawing


def items_of(drawing: Drawing) -> list[Item]:
    return [item for item in drawing.items() if isinstance(item, Item)]


def test_a_rank_is_one_process_whichever_instrument_recorded_it(tmp_path: Path) -> None:
    drawing = measured(Drawing(job(tmp_path)))
    assert {one.instrument for one in {item.track.process for item in items_of(drawing)}} == {
        "training",
        "profile",
    }
    named = sorted(one.name for one in drawing.processes.values())
    assert named == ["rank 1 on node0", "replica 0, rank 0 on node0"]


def test_steps_choose_what_lies_in_them_of_every_instrument(tmp_path: Path) -> None:
    whole = job(tmp_path)
    chosen = items_of(measured(Drawing(whole, Chosen(steps=(2, 2)))))
    assert {item.name for item in chosen if item.track.name == "iterations"} == {
        "iteration 1",
        "iteration 2",
        "iteration 3",
    }
    assert all(item.end_ns >= 200 * MS and item.begin_ns <= 300 * MS for item in chosen)
    assert any(item.track.name == "profiled steps" for item in chosen)
    counters = [item for item in Drawing(whole, Chosen((2, 2))).items() if isinstance(item, Counter)]
    assert all(200 * MS <= counter.at_ns <= 300 * MS for counter in counters)


def test_a_rank_that_only_the_profile_knows_is_one_by_its_pid(tmp_path: Path) -> None:
    drawing = Drawing(job(tmp_path))
    assert {item.track.process.pid for item in items_of(measured(drawing))} == {4000, 4001}


def test_ranks_choose_processes_and_leave_no_arrow_with_one_end(tmp_path: Path) -> None:
    whole = job(tmp_path)
    both = items_of(measured(Drawing(whole)))
    assert sum(len(item.ends) for item in both) == 8
    one = items_of(measured(Drawing(whole, Chosen(ranks=frozenset({1})))))
    assert {item.track.process.rank for item in one} == {1} and not any(item.ends for item in one)


def test_steps_that_there_are_not_are_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(PerfError) as said:
        Drawing(job(tmp_path), Chosen(steps=(30, 40)))
    assert str(said.value) == "--steps 30:40: no such steps are recorded; there are 1 to 25"


def test_the_size_is_estimated_and_the_reading_stops_where_it_is_too_much(tmp_path: Path) -> None:
    drawing = Drawing(job(tmp_path))
    size = drawing.measure(lambda items: 10 * len(items), None)
    assert size.bytes == 10 * sum(1 for _ in drawing.items())
    assert size.slices == sum(1 + len(item.parts) for item in items_of(drawing)) and size.arrows == 4
    first = Drawing(drawing.whole).measure(lambda items: 10 * len(items), 100)
    assert size.bytes > first.bytes > 100  # of the first session alone


def test_it_begins_with_what_was_recorded_first(tmp_path: Path) -> None:
    """The first profiled step began before the training's session."""
    drawing = measured(Drawing(job(tmp_path, start_mono_ns=150 * MS)))
    header = drawing.whole.lead.header
    assert drawing.zero_ns == 0 and drawing.wall_ns == header.start_wall_ns - 150 * MS


def test_another_machines_marks_are_on_the_leading_clock(tmp_path: Path) -> None:
    whole = job(tmp_path)
    other = make_profile_header("20240129_103002", host="node1", boot_id="b", start_mono_ns=5000 * MS)
    (tmp_path / "other").mkdir()
    session = Job(make_profile().write(tmp_path / "other", other)).session()
    member = Member(session, whole.stretch, "", is_on_clock=False)
    drawing = Drawing(replace(whole, members=[*whole.members, member]))
    moved = [item for item in drawing.items([session]) if isinstance(item, Item)]
    assert min(item.begin_ns for item in moved) == -5000 * MS
    assert all(end.at_ns <= item.end_ns for item in moved for end in item.ends)
