"""A rank whose core others use, in real trainings: the host is named, and nobody is blamed for it. The truth
is what the ranks themselves read of the kernel's count, step by step.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from flagscale_perf.training.analysis.fold import read_report
from tests.processes import crowded
from tests.processes import flagscale as fs

pytestmark = pytest.mark.host

LIMIT, STEP = 0.05, 0.02  # a stretch begins and ends with a step, readings do not
BLAMING = {"data_stall", "straggler", "exposed_comm", "jitter", "long_phase"}
MONITOR = ["--enable-perf-monitor", "--perf-breakdown", "--perf-max-overhead", 100, "--perf-log-dir", "perf"]


def waited(directory: Path, rank: int, dur_ns: int) -> tuple[float, float]:
    """The least and the most of any stretch of so long from the second step on, for which the rank's thread
    had no CPU: when the monitor has read it, a rank does not know.
    """
    rows = [tuple(map(int, row)) for row in csv.reader((directory / f"schedule_{rank}.csv").open())][1:]
    found = []
    for begin_ns, before_ns in rows:
        end_ns, after_ns = next((row for row in rows if row[0] - begin_ns >= dur_ns), rows[-1])
        if end_ns - begin_ns >= 0.9 * min(dur_ns, rows[-1][0] - rows[0][0]):
            found.append((after_ns - before_ns) / (end_ns - begin_ns))
    return min(found), max(found)


def read_ns(directory: Path, rank: int) -> int:
    """Over which time the monitor has read a rank's host."""
    return sum(each["host"]["host_ns"][rank] or 0 for each in fs.records(directory, "ranks") if each["host"])


@pytest.mark.parametrize(("loops", "iterations"), [(0, 60), (2, 60), (8, 30)])
def test_a_host_short_of_cpu_is_named_whichever_rank_it_is(
    tmp_path: Path, loops: int, iterations: int
) -> None:
    script = [crowded.__file__, loops, fs.train_gpt(), *fs.SMALL, "--train-iters", iterations]
    finished = fs.run(fs.torchrun(2, *fs.launched(*map(str, [*script, *MONITOR]))), tmp_path)
    assert finished.returncode == 0, finished.output[-3000:]
    (path,) = (tmp_path / "perf").glob("perf_records_*.jsonl")
    report = read_report(path)
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
