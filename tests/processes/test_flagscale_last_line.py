"""A log directory that cannot be used costs a real run nothing but its records, and the run's last line says
so.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes import flagscale as fs

pytestmark = pytest.mark.host


@pytest.mark.parametrize(
    ("ranks", "directory", "why"),
    [
        (1, "/proc/nope/perf", "No such file or directory"),
        (2, "way/perf", "Not a directory"),
    ],
)
def test_a_run_that_records_nothing_ends_well_and_says_so_last(
    ranks: int, directory: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "way").write_text("in the way")
    monitor = ["--enable-perf-monitor", "--perf-log-dir", directory]
    words = [fs.train_gpt(), *fs.SMALL, "--train-iters", 3, *monitor]
    finished = fs.run(fs.workers(ranks, *fs.launched(*map(str, words))), tmp_path)
    assert finished.returncode == 0, finished.output[-3000:]
    assert len(finished.lines) == 3
    assert finished.output.splitlines()[-1] == (
        f"flagscale_perf: nothing was recorded in {tmp_path / directory}: run file: {why}; "
        "give a --perf-log-dir that can be written"
    )
    assert (tmp_path / "way").read_text() == "in the way"
