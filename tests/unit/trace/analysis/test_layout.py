"""The report of a queue's log has the requirement's layout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from flagscale_perf.analysis.job import open_session
from flagscale_perf.trace.analysis.layout import layout
from flagscale_perf.trace.analysis.source import read_traces
from tests.golden import golden
from tests.trace_runs import lines_of_call, lines_of_put, pipeline


def _log(directory: Path) -> Path:
    """50 calls of `rollout` with the requirement's times, each of a trace of its own, with a put inside."""
    rows = []
    for number in range(50):
        trace = f"{number:08x}"
        rows += [*lines_of_call(trace_id=trace), *lines_of_put(trace)]
    path = directory / "training.log"
    path.write_text("\n".join(rows) + "\n")
    return path


def _script(repo: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(repo / "scripts" / "analyze_tq_logs.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={"PYTHONUTF8": "1"})


def test_the_layout_is_the_requirements(tmp_path: Path) -> None:
    assert layout(read_traces(open_session(_log(tmp_path)))) == golden("analyze_tq_logs.txt")


def test_the_script_prints_it(tmp_path: Path, repo: Path) -> None:
    done = _script(repo, _log(tmp_path))
    assert (done.stdout, done.stderr, done.returncode) == (str(golden("analyze_tq_logs.txt")), "", 0)


def test_the_script_reads_a_runs_directory(tmp_path: Path, repo: Path) -> None:
    pipeline().write(tmp_path)
    done = _script(repo, tmp_path)
    assert done.returncode == 0
    assert "Total Traces: 20\n" in done.stdout
    assert "  平均GET耗时:        0.006000s (6.00%)\n" in done.stdout


def test_a_missing_log_is_named(tmp_path: Path, repo: Path) -> None:
    done = _script(repo, tmp_path / "no.log")
    assert (done.stdout, done.returncode) == ("", 2)
    assert "no.log' does not exist" in done.stderr


def test_a_log_without_traces_gets_a_sentence(tmp_path: Path, repo: Path) -> None:
    (tmp_path / "a.log").write_text("step 1\n")
    done = _script(repo, tmp_path / "a.log")
    assert (done.stderr, done.returncode) == ("", 1)
    assert done.stdout.endswith(
        "a.log: no TQ-TRACE line in it: is TQ_TRACE_ENABLED=1 set, and VERL_LOGGING_LEVEL not above INFO?\n"
    )
