"""The ranks of a bandwidth test, as real processes over gloo."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.bench.bandwidth import ranks
from flagscale_perf.bench.bandwidth.job import Job
from flagscale_perf.bench.ports import free_port
from flagscale_perf.spine.errors import PerfError
from tests.warm_ranks import POINTS_TO_STDOUT, make_python_warm

JOB = Job(2, "gloo", ("all_reduce", "reduce_scatter", "all_gather"), (1024, 4096), (4096,), 2, 0.001, 8192)


@pytest.fixture
def warm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_python_warm(tmp_path, monkeypatch, POINTS_TO_STDOUT)


@pytest.mark.usefixtures("warm")
def test_every_point_of_the_job_is_measured() -> None:
    points = list(ranks.run(JOB, free_port()))
    assert len(points) == JOB.planned == 13
    assert [point.case for point in points[:4]] == [
        {"op": name, "rank": rank, "size_bytes": 8192, "moved_bytes": moved}
        for rank in range(2)
        for name, moved in (("copy", 16384), ("triad", 24576))
    ]
    message = {"op": "send_recv", "size_bytes": 4096, "dtype": "float32"}
    assert [point.case for point in points[4:7]] == [
        message | {"src": 0, "dst": 1, "way": "one way"},
        message | {"src": 0, "dst": 1, "way": "both ways"},
        message | {"src": 1, "dst": 0, "way": "one way"},
    ]
    collective = {"ranks": 2, "dtype": "float32"}
    assert [point.case for point in points[7:]] == [
        collective | {"op": name, "executed": executed, "size_bytes": size}
        for name, executed in (
            ("all_reduce", "all_reduce"),
            ("reduce_scatter", "all_reduce"),  # so does gloo scatter what it reduces
            ("all_gather", "all_gather"),
        )
        for size in (1024, 4096)
    ]
    assert {len(point.samples) for point in points} == {2}
    assert all(sample > 0 for point in points for sample in point.samples)
    assert all(point.dur_ns > 0 for point in points)


@pytest.mark.usefixtures("warm")
def test_one_rank_measures_its_memory_alone() -> None:
    job = Job(1, "gloo", (), (1024,), (), 2, 0.001, 8192)
    assert [point.case["op"] for point in ranks.run(job, free_port())] == ["copy", "triad"]


@pytest.mark.usefixtures("warm")
def test_a_rank_that_fails_is_named_and_ends_the_others() -> None:
    job = Job(2, "gloo", ("all_reduce", "no_such"), (1024,), (), 2, 0.001, 8192)
    with pytest.raises(PerfError, match="rank [01] failed: .*no_such.*; what was measured before is kept"):
        list(ranks.run(job, free_port()))


def test_who_stops_listening_ends_the_ranks() -> None:
    """Cold ones, our children: the fixture that looks for leftovers would see them."""
    points = ranks.run(JOB, free_port())
    next(points)
    points.close()


LINGERING = """
import json, os, sys, time
with os.fdopen(int(sys.argv[3]), "w") as out:
    out.write(json.dumps({"case": {"op": sys.argv[1]}, "start_ns": 1, "dur_ns": 2, "samples": [0.5]}) + "\\n")
time.sleep(600)
"""


def test_ranks_that_end_slowly_cost_no_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a busy machine, where torch takes its time to leave."""
    (tmp_path / "lingering.py").write_text(LINGERING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(ranks, "END_S", 0.01)
    points = list(ranks.run(JOB, free_port(), "lingering"))
    assert sorted(point.case["op"] for point in points) == ["0", "1"]
