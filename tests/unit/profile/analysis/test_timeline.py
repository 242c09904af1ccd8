"""Steps and collectives of all ranks on a timeline."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.timeline import Arrow, Moment, Name, Span, Track
from flagscale_perf.profile.analysis.timeline import timeline
from flagscale_perf.profile.calls import CallFiles, StepCalls, read_calls
from flagscale_perf.profile.events import Kernels
from flagscale_perf.profile.records import DelayRecord
from tests.profile_runs import MS, Profiled, make_profile, make_profile_header


def test_ranks_are_processes_and_waiting_is_an_arrow(tmp_path: Path) -> None:
    run = open_session(make_profile().write(tmp_path))
    items = list(timeline(run).items(run))
    named = [item.text for item in items if isinstance(item, Name) and item.is_process]
    assert named == ["rank 0", "rank 0 GPTModel", "rank 1", "rank 1 GPTModel"]
    spans = [item for item in items if isinstance(item, Span) and item.track.process == 101]
    assert [(span.name, span.start_ns // MS, span.end_ns // MS) for span in spans] == [
        ("train 20", 0, 100),
        ("train 21, clean", 110, 206),
        ("train 22", 210, 312),
        ("train 23, clean", 320, 418),
        ("gloo:all_reduce", 20, 27),
        ("gloo:all_reduce", 60, 65),
        ("gloo:all_reduce", 120, 129),
        ("gloo:all_reduce", 170, 175),
        ("window", 0, 396),
    ]
    arrows = [item for item in items if isinstance(item, Arrow)]
    assert len(arrows) == 4  # one for each of the four all-reduces, from the rank that came last
    assert (arrows[0].source, arrows[0].source_ns) == (Track(102, 10), 23 * MS + 1)
    assert (arrows[0].target, arrows[0].target_ns) == (Track(101, 10), 27 * MS - 1)


def test_steps_that_an_earlier_version_slowed_down_are_not_drawn(tmp_path: Path) -> None:
    job = make_profile()
    run = open_session(job.write(tmp_path))
    drawn = list(timeline(run).items(run))
    job.records.append(DelayRecord(1, 4001, 9, 0, 12 * MS, 0, 0, 0, 0, 5 * MS, 5 * MS, 1))
    earlier = open_session(job.write(tmp_path))
    assert list(timeline(earlier).items(earlier)) == drawn


def _arrows(job: Profiled, directory: Path) -> list[Arrow]:
    run = open_session(job.write(directory))
    return [item for item in timeline(run).items(run) if isinstance(item, Arrow)]


def test_a_message_is_an_arrow_from_who_sends_to_who_receives(tmp_path: Path) -> None:
    job = Profiled()
    for rank, is_send, start, took in ((0, 1, 10, 2), (1, 0, 4, 9)):
        process = job.rank(rank, pipeline=rank, pipeline_size=2, tensor=0, tensor_size=1)
        job.collective(
            process,
            start,
            took,
            op="gloo:send" if is_send else "gloo:recv",
            group="",
            step=1,
            call="c10d::send" if is_send else "c10d::recv_",
            is_send=is_send,
            peer=1 - rank,
        )
    assert _arrows(job, tmp_path) == [
        Arrow("message", "0/0", Track(101, 10), 10 * MS + 1, Track(102, 10), 13 * MS - 1)
    ]


def test_groups_of_one_name_are_not_mixed_up_and_a_rank_that_is_missing_may_be_the_last(
    tmp_path: Path,
) -> None:
    job = Profiled()
    for rank in (0, 1, 2):
        pair = "TENSOR_MODEL_PARALLEL_GROUP 0-1" if rank < 2 else "TENSOR_MODEL_PARALLEL_GROUP 2-3"
        process = job.rank(rank, 4)
        job.collective(process, 10 + rank, 8 - rank, group=pair, sequence=1, step=1)
    (only,) = _arrows(job, tmp_path)  # rank 3 is not in the file
    assert (only.name, only.source, only.source_ns) == ("last to come", Track(102, 10), 11 * MS + 1)
    assert (only.target, only.target_ns) == (Track(101, 10), 18 * MS - 1)


ATTENTION, MLP = "model.layers.0.attention", "model.layers.0.mlp"
MODULES, OPS = ["", ATTENTION, MLP], ["linear", "mm", "relu"]
# module, operator, start, end: mm lies inside of linear; in the backward two threads overlap by 1 ms
FORWARD = [(1, 0, 10, 14), (1, 1, 11, 13), (2, 0, 14, 18), (2, 2, 18, 19)]
BACKWARD = [(2, 1, 20, 24), (1, 1, 23, 26)]
STREAMS = [(7, 12, 15), (7, 15, 18), (20, 13, 25)]


def _calls() -> StepCalls:
    rows = [(1, *row) for row in FORWARD] + [(2, *row) for row in BACKWARD]
    part, module, op, start, end = np.array(rows, np.int64).T
    stream, begin, until = np.array(STREAMS, np.int64).T
    kernels = Kernels(
        ["gemm"],
        np.zeros(len(stream), np.int64),
        begin * MS,
        (until - begin) * MS,
        np.zeros(len(stream), np.int64),
        stream,
    )
    return StepCalls(
        ["other", "forward", "backward"],
        MODULES,
        OPS,
        part,
        module,
        op,
        np.arange(len(part)),
        start * MS,
        (end - start) * MS,
        (end - start) * MS,
        kernels,
    )


def _items(directory: Path, name: str | None = None) -> list[object]:
    job = Profiled()
    process = job.rank(0, 1)
    job.window(process, calls=name or CallFiles(directory).write([(1, _calls())]))
    session = open_session(job.write(directory, make_profile_header()))
    return list(session.items(timeline(session)))


def _drawn(directory: Path) -> dict[str, list[tuple[str, int, int]]]:
    items = _items(directory)
    tracks = {item.track: item.text for item in items if isinstance(item, Name)}
    made: dict[str, list[tuple[str, int, int]]] = {}
    for item in items:
        if isinstance(item, Span):
            title = f"{tracks[item.track]} {item.track.thread % 1000}"
            made.setdefault(title, []).append((item.name, item.start_ns // MS, item.end_ns // MS))
    return made


def _in_order(span: tuple[str, int, int]) -> tuple[int, int, int]:
    name, start, end = span
    return start, -end, len(name)


def test_operators_lie_inside_each_other_or_in_another_lane(tmp_path: Path) -> None:
    found = _drawn(tmp_path)
    assert found["operators 0"] == [
        ("linear", 10, 14),
        ("mm", 11, 13),
        ("linear", 14, 18),
        ("relu", 18, 19),
        ("mm", 20, 24),
    ]
    assert found["operators 1"] == [("mm", 23, 26)]


def test_modules_last_from_their_first_operator_to_their_last_one(tmp_path: Path) -> None:
    found = _drawn(tmp_path)
    assert sorted(found["modules, forward 0"], key=_in_order) == [
        ("model", 10, 19),
        ("model.layers.0", 10, 19),
        (ATTENTION, 10, 14),
        (MLP, 14, 19),
    ]
    assert sorted(found["modules, backward 1"], key=_in_order) == [
        ("model", 20, 26),
        ("model.layers.0", 20, 26),
        (MLP, 20, 23),
        (ATTENTION, 23, 26),
    ]


def test_kernels_lie_on_their_streams(tmp_path: Path) -> None:
    found = _drawn(tmp_path)
    assert found["kernels, stream 7 0"] == [("gemm", 12, 15), ("gemm", 15, 18)]
    assert found["kernels, stream 20 1"] == [("gemm", 13, 25)]


def test_what_has_no_room_in_a_lane_is_drawn_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flagscale_perf.profile.analysis.timeline.RUN_LANES", 0)
    items = _items(tmp_path)
    apart = [item for item in items if isinstance(item, Span) and item.category]
    assert len(apart) == len(FORWARD + BACKWARD)
    assert (apart[-1].name, apart[-1].start_ns // MS) == ("mm", 23)
    assert [item.text for item in items if isinstance(item, Name)].count("operators") == 1


def test_a_file_that_is_gone_is_a_moment_with_the_reason(tmp_path: Path) -> None:
    (moment,) = [one for one in _items(tmp_path, "perf_calls_gone.npz") if isinstance(one, Moment)]
    assert moment.name == "runs of operators are missing" and "perf_calls_gone.npz" in moment.args["text"]


def test_a_file_without_a_device_has_no_kernels(tmp_path: Path) -> None:
    calls = _calls()
    name = CallFiles(tmp_path).write([(1, StepCalls(**vars(calls) | {"kernels": None}))])
    found = read_calls(tmp_path / name)
    assert found.kernels == {} and len(found) == len(FORWARD + BACKWARD)
