"""The examples of analysis run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.golden import golden
from tests.synthetic import TROUBLED, write

EXAMPLES = Path(__file__).parents[2] / "examples" / "analysis"
DEADLINE_S = 120  # for the slowest machine


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


def test_the_report_in_python(tmp_path: Path) -> None:
    write(TROUBLED, tmp_path)
    result = run("read_report.py", str(tmp_path), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[1] == (
        "data_stall: Waiting for data takes 9.5 % of the steps' time on ranks 0 to 5 (at most +10.6% "
        "tokens/s)"
    )
    assert [line.split()[0] for line in result.stdout.splitlines()[-8:]] == [
        "Data", "Forward", "Backward", "Pipe", "Comm", "Optim", "Other", "Between",
    ]  # fmt: skip
