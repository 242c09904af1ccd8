"""The tools of the experiments under the requirement's names, as they are called."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.bench_runs import GB, book_in, local
from tests.conftest import RunPython
from tests.typed import typed

SCRIPTS = Path(__file__).parents[2] / "scripts"
NAMES = ("latency_vs_sequence_length", "parallelism_overhead", "visualize_results")
BAD = (
    (
        "latency_vs_sequence_length",
        ("--model", "nowhere", "--max_model_len", "4096"),
        "no nowhere/config.json",
    ),
    ("parallelism_overhead", ("--test-all", "--model", "nowhere"), "no nowhere/config.json"),
    ("visualize_results", ("--results-dir", "nowhere"), "'nowhere' does not exist"),
)


def test_each_says_how_it_is_used_and_tells_a_mistake_without_a_traceback(run_python: RunPython) -> None:
    pages = typed(run_python, [(SCRIPTS / f"{name}.py", "--help") for name in NAMES])
    assert [(page.code, page.stdout[:7], page.stderr) for page in pages] == [(0, "usage: ", "")] * len(NAMES)
    refused = typed(run_python, [(SCRIPTS / f"{name}.py", *words) for name, words, _ in BAD])
    assert [each.code for each in refused] == [2] * len(BAD)
    for each, (_, _, message) in zip(refused, BAD, strict=True):
        assert message in each.stderr


def test_results_are_drawn_again(run_python: RunPython, tmp_path: Path) -> None:
    with book_in(tmp_path) as book, book.part("bandwidth", 1, {}) as part:
        local(part, "copy", 0, [0.5], 2 * GB)
    done = run_python(SCRIPTS / "visualize_results.py", f"--results-dir={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "plots/bandwidth_analysis.png").stat().st_size > 1000
    (report,) = tmp_path.rglob("performance_report.md")
    assert "copy" in report.read_text()


def test_all_experiments_end_with_the_exit_code_of_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [SCRIPTS / "run_all_experiments.sh", "--help"],
        text=True,
        capture_output=True,
        check=True,
        env=os.environ | {"PYTHON": sys.executable, "PYTHONPATH": str(SCRIPTS.parent)},
        cwd=tmp_path,
    )
    assert done.stdout.startswith("usage: flagscale-perf bench all")
    assert {"--vllm-python", "--quick", "--results-dir"} <= set(done.stdout.replace(",", " ").split())
