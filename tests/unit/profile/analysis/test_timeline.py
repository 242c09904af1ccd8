"""Steps and collectives of all ranks on a timeline."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.lanes import Laid, laid
from flagscale_perf.analysis.timeline import End, Item
from flagscale_perf.profile.analysis.timeline import timeline
from flagscale_perf.profile.calls import CallFiles, StepCalls, read_calls
from flagscale_perf.profile.events import Kernels
from tests.profile_runs import MS, Profiled, make_profile, make_profile_header


def test_ranks_are_processes_and_waiting_is_an_arrow(tmp_path: Path) -> None:
    run = open_session(make_profile().write(tmp_path))
    items = [item for item in timeline(run).items(run) if isinstance(item, Item)]
    ranks = {item.track.process for item in items}
    assert {(one.name, one.rank, one.pid) for one in ranks} == {
        ("rank 0 on node0", 0, 4000),
        ("rank 1 on node0", 1, 4001),
    }
    spans = [item for item in items if item.track.process.rank == 0]
    assert [(span.name, span.begin_ns // MS, span.end_ns // MS) for span in spans] == [
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
    steps = {item.id for item in items if item.track.name == "profiled steps"}
    assert {item.parent for item in items if item.name == "gloo:all_reduce"} <= steps
    arrows = _arrows_of(items)
    assert len(arrows) == 4  # one for each of the four all-reduces, from the rank that came last
    assert arrows[0] == ("last to come", 1, 23 * MS, 0, 27 * MS - 1)


def _arrows_of(items: list[Item]) -> list[tuple[str, int | None, int, int | None, int]]:
    """Name, rank and time at one end, rank and time at the other."""
    ends: dict[int, list[tuple[End, Item]]] = {}
    for item in items:
        for end in item.ends:
            ends.setdefault(end.key, []).append((end, item))
    made = []
    for source, target in (sorted(found, key=lambda each: not each[0].is_source) for found in ends.values()):
        ranks = source[1].track.process.rank, target[1].track.process.rank
        made.append((source[0].name, ranks[0], source[0].at_ns, ranks[1], target[0].at_ns))
    return sorted(made, key=lambda arrow: arrow[2])


def _arrows(job: Profiled, directory: Path) -> list[tuple[str, int | None, int, int | None, int]]:
    run = open_session(job.write(directory))
    return _arrows_of([item for item in timeline(run).items(run) if isinstance(item, Item)])


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
    assert _arrows(job, tmp_path) == [("message", 0, 10 * MS, 1, 13 * MS - 1)]


def test_groups_of_one_name_are_not_mixed_up_and_a_rank_that_is_missing_may_be_the_last(
    tmp_path: Path,
) -> None:
    job = Profiled()
    for rank in (0, 1, 2):
        pair = "TENSOR_MODEL_PARALLEL_GROUP 0-1" if rank < 2 else "TENSOR_MODEL_PARALLEL_GROUP 2-3"
        process = job.rank(rank, 4)
        job.collective(process, 10 + rank, 8 - rank, group=pair, sequence=1, step=1)
    (only,) = _arrows(job, tmp_path)  # rank 3 is not in the file
    assert only == ("last to come", 1, 11 * MS, 0, 18 * MS - 1)


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


def _items(directory: Path, name: str | None = None) -> list[Item]:
    job = Profiled()
    process = job.rank(0, 1)
    job.window(process, calls=name or CallFiles(directory).write([(1, _calls())]))
    session = open_session(job.write(directory, make_profile_header()))
    return [item for item in timeline(session).items(session) if isinstance(item, Item)]


def _drawn(directory: Path) -> dict[str, list[tuple[str, int, int]]]:
    """What lies in the lanes of each row."""
    made: dict[str, list[tuple[str, int, int]]] = {}
    for one in laid(_items(directory)):
        if isinstance(one, Laid) and not one.is_end:
            title = f"{one.lane.track.name} {one.lane.place}"
            item = one.item
            made.setdefault(title, []).append((item.name, item.begin_ns // MS, item.end_ns // MS))
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
    assert sorted(found["modules, backward 0"], key=_in_order) == [
        ("model", 20, 26),
        ("model.layers.0", 20, 26),
        (MLP, 20, 23),
        (ATTENTION, 23, 26),
    ]


def test_kernels_lie_on_their_streams(tmp_path: Path) -> None:
    found = _drawn(tmp_path)
    assert found["kernels, stream 7 0"] == [("gemm", 12, 15), ("gemm", 15, 18)]
    assert found["kernels, stream 20 0"] == [("gemm", 13, 25)]


def test_a_file_that_is_gone_is_a_moment_with_the_reason(tmp_path: Path) -> None:
    moment = _items(tmp_path, "perf_calls_gone.npz")[-1]
    assert moment.name == "runs of operators are missing" and "perf_calls_gone.npz" in moment.facts["text"]
    assert moment.begin_ns == moment.end_ns


def test_a_file_without_a_device_has_no_kernels(tmp_path: Path) -> None:
    calls = _calls()
    name = CallFiles(tmp_path).write([(1, StepCalls(**vars(calls) | {"kernels": None}))])
    found = read_calls(tmp_path / name)
    assert found.kernels == {} and len(found) == len(FORWARD + BACKWARD)
