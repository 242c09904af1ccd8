"""The examples of analysis run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.golden import golden
from tests.synthetic import TROUBLED, write

EXAMPLES = Path(__file__).parents[2] / "examples" / "analysis"
DEADLINE_S = 600  # only what hangs takes so long


def run(script: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        "MPLBACKEND": "Agg",
        "PYTHONPATH": str(EXAMPLES.parents[1]),
        "MPLCONFIGDIR": str(cwd),
        "PATH": "",
    }
    command = [sys.executable, str(EXAMPLES / script), *words]
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=DEADLINE_S
    )


def test_the_documented_one(tmp_path: Path) -> None:
    directory = tmp_path / "logs" / "perf_monitor"
    directory.mkdir(parents=True)
    (directory / "perf_summary_20240129_103000.json").write_text(golden("perf_summary.json"))
    (directory / "perf_summary_20240128_103000.json").write_text("an older one")
    result = run("plot_summary.py", cwd=tmp_path)
    assert (result.stdout, result.returncode) == (
        "Average TFLOPS: 5.00\nPeak TFLOPS: 5.00\nThroughput: 10240 tokens/s\n",
        0,
    ), result.stderr


def test_a_run_in_python(tmp_path: Path) -> None:
    write(TROUBLED, tmp_path)
    result = run("read_report.py", str(tmp_path), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    findings, slowest, phases, ranks = (part.splitlines() for part in result.stdout.split("\n\n"))
    assert any(line.startswith("data_stall: Waiting for data takes ") for line in findings)
    assert (slowest[0], slowest[1].split()) == (
        "slowest iterations",
        ["iteration", "iteration_ms", "outcome"],
    )
    assert len(slowest) == 5
    assert [line.split()[0] for line in phases[1:4]] == ["data_loading_ms", "forward_ms", "backward_ms"]
    assert (ranks[0], [line.split()[0] for line in ranks[2:]]) == (
        "median work of each rank, ms",
        [str(rank) for rank in range(8)],
    )


def test_wrong_input_is_said_in_one_line(tmp_path: Path) -> None:
    def said(script: str, *words: str) -> str:
        """The one line on stderr of an example that ends with 1."""
        result = run(script, *words, cwd=tmp_path)
        assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1), result.stderr
        return result.stderr

    assert said("read_report.py").startswith("'logs/perf_monitor' does not exist; give the directory of")
    assert said("read_report.py", "a", "b").startswith("one run at a time: python ")
    (tmp_path / "perf_summary_20240129_103000.json").write_text('{"a": 1}')
    assert said("read_report.py", str(tmp_path)).startswith(
        f"no perf_records_*.jsonl in {str(tmp_path)!r}, but perf_summary"
    )
    assert said("plot_summary.py", str(tmp_path)) == (
        f"{tmp_path}/perf_summary_20240129_103000.json: no summary of flagscale_perf "
        "(KeyError('iteration_logs')); give the directory of --perf-log-dir\n"
    )
