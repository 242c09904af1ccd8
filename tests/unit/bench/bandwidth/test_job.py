"""What a bandwidth test measures."""

from __future__ import annotations

import pytest

from flagscale_perf.bench.bandwidth.job import Job

JOB = Job(3, "gloo", ("all_reduce", "broadcast"), (1024, 2048), (4096,), 5, 0.1, 1 << 20)


def test_a_job_comes_over_as_a_line() -> None:
    assert "\n" not in JOB.encode()
    assert Job.decode(JOB.encode()) == JOB


def test_each_pair_has_two_orders() -> None:
    assert JOB.pairs == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]


@pytest.mark.parametrize(
    ("backend", "points"),
    # 2 x 2 collectives, in place only; 6 ordered pairs one way and 3 both ways; copy and triad of 3 ranks
    [("gloo", 4 + 9 + 6), ("nccl", 4 + 9 + 24)],  # and 6 host-device copies of each
)
def test_points_are_counted_before(backend: str, points: int) -> None:
    job = Job(3, backend, JOB.operations, JOB.sizes, JOB.message_sizes, 5, 0.1, 1 << 20)
    assert (job.planned, job.device) == (points, "cpu" if backend == "gloo" else "cuda")


def test_levels_of_nodes_are_groups_that_work_by_themselves() -> None:
    job = Job(4, "gloo", ("all_reduce", "scatter"), (1024,), (), 5, 0.1, 1 << 20, nodes=(0, 0, 1, 1))
    assert job.levels == {"inside a node": [[0, 1], [2, 3]], "between nodes": [[0, 2]]}
    assert job.planned == 3 * 3 + 2 * 4  # three levels of three ways; copy and triad of 4 ranks
    assert (job.level((0, 1)), job.level((1, 2))) == ({"level": "inside a node"}, {"level": "between nodes"})
    assert Job.decode(job.encode()) == job


@pytest.mark.parametrize("nodes", [(), (0, 0, 0), (0, 1, 2)], ids=["unknown", "one", "one rank each"])
def test_where_all_ranks_are_one_level_there_are_no_groups(nodes: tuple[int, ...]) -> None:
    assert Job(3, "gloo", ("all_reduce",), (1024,), (), 5, 0.1, 1 << 20, nodes=nodes).levels == {}
