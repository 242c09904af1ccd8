"""`detailed_timings.csv`: a line a run."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.job import open_session
from flagscale_perf.profile.analysis.source import read_profile
from flagscale_perf.profile.analysis.timings import lines, missing
from flagscale_perf.profile.calls import CallFiles
from tests.profile_runs import make_profile
from tests.unit.profile.test_calls import of_step


def test_each_run_with_its_step(tmp_path: Path) -> None:
    job = make_profile()
    names = [CallFiles(tmp_path).write([(3, of_step((1, 1000, 50), (2, 1060, 5)))]), ""]
    windows = [place for place, record in enumerate(job.records) if type(record).__name__ == "WindowRecord"]
    process = job.records[windows[0]].process
    job.window(process, calls=names[0])
    found = read_profile(open_session(job.write(tmp_path)))
    rank = found.ranks[0]
    step = {row["number"]: row for row in rank.steps.records()}.get(3, {"iteration": None, "phase": None})
    iteration, phase = ("" if step[name] is None else step[name] for name in ("iteration", "phase"))
    assert b"".join(lines(found)).decode().splitlines(keepends=True) == [
        "rank,iteration,step,step_phase,phase,module,op,kind,ordinal,start_ns,duration_ns,self_ns\n",
        f"0,{iteration},3,{phase},forward,m,aten::mm,matmul,0,1000,50,49\n",
        f"0,{iteration},3,{phase},forward,m,aten::add,elementwise,1,1060,5,4\n",
    ]
    assert list(missing(found)) == [
        "rank 0: a window has sums of its operators alone",
        "rank 1: a window has sums of its operators alone",
    ]


def test_a_file_that_is_gone_is_said(tmp_path: Path) -> None:
    job = make_profile()
    windows = [record for record in job.records if type(record).__name__ == "WindowRecord"]
    job.window(windows[0].process, calls="perf_calls_gone.npz")
    found = read_profile(open_session(job.write(tmp_path)))
    assert len(list(lines(found))) == 1
    assert any("perf_calls_gone.npz: the runs of operators cannot be read" in one for one in missing(found))
