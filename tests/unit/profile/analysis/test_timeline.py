"""Steps and collectives of all ranks on a timeline."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.run_file import RunFile
from flagscale_perf.analysis.timeline import Arrow, Name, Span, Track
from flagscale_perf.profile.analysis.timeline import timeline
from tests.profile_runs import MS, Profiled, make_profile


def test_ranks_are_processes_and_waiting_is_an_arrow(tmp_path: Path) -> None:
    run = RunFile(make_profile().write(tmp_path))
    items = list(timeline(run.header).items(run))
    named = [item.text for item in items if isinstance(item, Name) and item.is_process]
    assert named == ["rank 0", "rank 0 GPTModel", "rank 1", "rank 1 GPTModel"]
    spans = [item for item in items if isinstance(item, Span) and item.track.process == 101]
    assert [(span.name, span.start_ns // MS, span.end_ns // MS) for span in spans] == [
        ("train 20", 0, 100), ("train 21, clean", 110, 206), ("train 22", 210, 312),
        ("train 23, clean", 320, 418), ("gloo:all_reduce", 20, 27), ("gloo:all_reduce", 60, 65),
        ("gloo:all_reduce", 120, 129), ("gloo:all_reduce", 170, 175), ("window", 0, 396),
    ]  # fmt: skip
    arrows = [item for item in items if isinstance(item, Arrow)]
    assert len(arrows) == 4  # one for each of the four all-reduces, from the rank that came last
    assert (arrows[0].source, arrows[0].source_ns) == (Track(102, 10), 23 * MS + 1)
    assert (arrows[0].target, arrows[0].target_ns) == (Track(101, 10), 27 * MS - 1)


def _arrows(job: Profiled, directory: Path) -> list[Arrow]:
    run = RunFile(job.write(directory))
    return [item for item in timeline(run.header).items(run) if isinstance(item, Arrow)]


def test_a_message_is_an_arrow_from_who_sends_to_who_receives(tmp_path: Path) -> None:
    job = Profiled()
    for rank, is_send, start, took in ((0, 1, 10, 2), (1, 0, 4, 9)):
        process = job.rank(rank, pipeline=rank, pipeline_size=2, tensor=0, tensor_size=1)
        job.collective(process, start, took, op="gloo:send" if is_send else "gloo:recv", group="", step=1,
                       call="c10d::send" if is_send else "c10d::recv_", is_send=is_send,
                       peer=1 - rank)  # fmt: skip
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
