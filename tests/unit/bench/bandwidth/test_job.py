"""What a bandwidth test measures."""

from __future__ import annotations

import pytest

from flagscale_perf.bench.bandwidth.job import Job

JOB = Job(3, "gloo", ("all_reduce", "all_to_all"), (1024, 2048), (4096,), 5, 0.1, 1 << 20)


def test_a_job_comes_over_as_a_line() -> None:
    assert "\n" not in JOB.encode()
    assert Job.decode(JOB.encode()) == JOB


def test_each_pair_has_two_orders() -> None:
    assert JOB.pairs == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]


@pytest.mark.parametrize(
    ("backend", "points"),
    # 2 x 2 collectives; 6 ordered pairs one way and 3 both ways; copy and triad of 3 ranks
    [("gloo", 4 + 9 + 6), ("nccl", 4 + 9 + 24)],  # and 6 host-device copies of each
)
def test_points_are_counted_before(backend: str, points: int) -> None:
    job = Job(3, backend, JOB.operations, JOB.sizes, JOB.message_sizes, 5, 0.1, 1 << 20)
    assert (job.planned, job.device) == (points, "cpu" if backend == "gloo" else "cuda")
