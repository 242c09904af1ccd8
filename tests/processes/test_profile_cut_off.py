"""A rank that is killed in a window: the window is lost with it, and the report says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from flagscale_perf.analysis.job import open_session
from flagscale_perf.profile.analysis.blocks import remarks_of
from flagscale_perf.profile.analysis.instrument import read_report
from flagscale_perf.profile.records import BeginRecord
from tests.members import finished, records_in, wait_for, writer_of

# Windows of steps 2 to 4 and 12 to 14; the process stops for good in the second one.
_RANK = """
import sys, time
from pathlib import Path
import torch
from flagscale_perf.profile.options import ProfileOptions, Steps
from flagscale_perf.profile.profiler import Profiler

options = ProfileOptions(Steps.parse("2-2/10"), Path(sys.argv[1]))
model = torch.nn.Linear(4, 4)
with Profiler(model, options) as profiler:
    for iteration in range(1, 13):
        with profiler.step(iteration):
            model(torch.ones(2, 4)).sum().backward()
    print("there", flush=True)
    time.sleep(3600)
"""


def test_the_window_that_a_rank_was_killed_in_is_told(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _RANK, tmp_path], stdout=subprocess.PIPE) as rank:
        assert rank.stdout is not None
        try:
            assert b"there\n" in rank.stdout  # behind what Kineto prints
            writer_of(tmp_path)
            wait_for(lambda: sum(isinstance(each, BeginRecord) for each in records_in(tmp_path)) == 2)
        finally:
            rank.kill()
    finished(tmp_path)
    report = read_report(open_session(tmp_path))
    assert remarks_of(report)[-1] == "rank 0: the window from step 12 on is lost: it was never written"
    (profiled,) = report.profile.ranks
    assert [each["iteration"] for each in profiled.begins.records()] == [2, 12]
    assert len(profiled.windows) == 1
