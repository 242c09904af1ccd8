"""Steps and collectives of all ranks on a timeline."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.run_file import RunFile
from flagscale_perf.analysis.timeline import Arrow, Name, Span, Track
from flagscale_perf.profile.analysis.timeline import timeline
from tests.profile_runs import MS, make_profile


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
