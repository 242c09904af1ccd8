"""A rank whose core others use, in real trainings: the host is named, and nobody is blamed for it. The truth
is what the ranks themselves read of the kernel's count, step by step.
"""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.training.analysis.fold import read_report
from tests.processes import crowded
from tests.processes import flagscale as fs

pytestmark = pytest.mark.host

LIMIT, STEP = 0.05, 0.02  # of the limit and of rounding
BLAMING = {"data_stall", "straggler", "exposed_comm", "jitter", "long_phase"}
MONITOR = ["--enable-perf-monitor", "--perf-breakdown", "--perf-max-overhead", 100, "--perf-log-dir", "perf"]


def waited(directory: Path, rank: int, dur_ns: int) -> tuple[float, float]:
    """The least and the most by which the kernel's count can have grown over a stretch of so long, as a share
    of it. The rank knows the count where its steps begin, not where the monitor has read it.
    """
    rows = [tuple(map(int, row)) for row in csv.reader((directory / f"schedule_{rank}.csv").open())]
    (last_ns, _), least, most = rows[-1], [], []
    for (begin_ns, before_ns), (later_ns, behind_ns) in itertools.pairwise(rows):
        if begin_ns + dur_ns <= last_ns:
            least.append(max(count for at_ns, count in rows if at_ns <= begin_ns + dur_ns) - behind_ns)
            most.append(next((n for at_ns, n in rows if at_ns >= later_ns + dur_ns), rows[-1][1]) - before_ns)
    return min(least) / dur_ns, max(most) / dur_ns


def read_ns(directory: Path, rank: int) -> int:
    """Over which time the monitor has read a rank's host."""
    return sum(each["host"]["host_ns"][rank] or 0 for each in fs.records(directory, "ranks") if each["host"])


@pytest.mark.parametrize(("loops", "iterations"), [pytest.param(0, 60, marks=pytest.mark.long), (8, 48)])
def test_a_host_short_of_cpu_is_named_whichever_rank_it_is(
    tmp_path: Path, loops: int, iterations: int
) -> None:
    script = [crowded.__file__, loops, fs.train_gpt(), *fs.SMALL, "--train-iters", iterations]
    finished = fs.run(fs.workers(2, *fs.launched(*map(str, [*script, *MONITOR]))), tmp_path)
    assert finished.returncode == 0, finished.output[-3000:]
    (path,) = (tmp_path / "perf").glob("perf_records_*.jsonl")
    report = read_report(open_session(path))
    true = [waited(tmp_path, rank, read_ns(tmp_path / "perf", rank)) for rank in (0, 1)]
    assert report.ranks is not None
    for entry, (least, most) in zip(report.ranks.entries, true, strict=True):
        assert entry.cpu_wait_share is not None
        assert least - STEP <= entry.cpu_wait_share <= most + STEP
    found = {each.name: each for each in report.findings}
    if "host_short_of_cpu" in found:
        assert max(most for _, most in true) > LIMIT - STEP
    else:
        assert max(least for least, _ in true) <= LIMIT + STEP
    if loops:
        short = found["host_short_of_cpu"]
        assert short.title.startswith("The host is short of CPU: rank 1's training thread waits ")
        assert short.ranks in ([1], [])  # of both, on a busy machine
        assert found.keys().isdisjoint(BLAMING)
