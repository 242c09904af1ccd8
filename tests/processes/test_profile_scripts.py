"""The tools under the requirement's names, as they are called."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.conftest import RunPython
from tests.profile_runs import make_profile
from tests.typed import typed

REPO = Path(__file__).parents[2]
SCRIPTS = REPO / "scripts"
BESIDE = {"PYTHONPATH": f"{SCRIPTS}{os.pathsep}{REPO}"}
NAMES = (
    "qwen3_detailed_profiling",
    "qwen3_visualizer",
    "run_qwen3_profiling_experiment",
    "qwen3_comm_profiler",
    "test_profiling_framework",
)
NOWHERE = "'nowhere' does not exist"
BAD = (
    (
        "qwen3_detailed_profiling",
        ("--pp", "2", "--mode", "train"),
        "--pp 2 --mode train: transformers' pipeline",
    ),
    ("qwen3_visualizer", ("nowhere",), NOWHERE),
    ("run_qwen3_profiling_experiment", ("--model", "nowhere"), "there is no nowhere/config.json"),
    ("qwen3_comm_profiler", ("nowhere",), NOWHERE),
    ("test_profiling_framework", ("--nothing",), "unrecognized arguments: --nothing"),
)


def test_each_says_how_it_is_used_and_tells_a_mistake_without_a_traceback(run_python: RunPython) -> None:
    pages = typed(run_python, [(SCRIPTS / f"{name}.py", "--help") for name in NAMES])
    assert [(page.code, page.stdout[:7], page.stderr) for page in pages] == [(0, "usage: ", "")] * len(NAMES)
    refused = typed(run_python, [(SCRIPTS / f"{name}.py", *words) for name, words, _ in BAD])
    assert [each.code for each in refused] == [2] * len(BAD)
    for each, (_, _, message) in zip(refused, BAD, strict=True):
        assert message in each.stderr


def test_each_can_be_imported(run_python: RunPython) -> None:
    code = f"import {', '.join(NAMES)}; print(*({'.__doc__, '.join(NAMES)}.__doc__))"
    imported = run_python("-c", code, env=BESIDE)
    assert [name for name in NAMES if f"python scripts/{name}.py" not in imported.stdout] == []


def test_collectives_of_a_profile_as_json(run_python: RunPython, tmp_path: Path) -> None:
    make_profile().write(tmp_path)
    done = run_python(SCRIPTS / "qwen3_comm_profiler.py", tmp_path)
    assert done.returncode == 0
    analysis = json.loads(done.stdout)["communication_analysis"]
    assert analysis["by_operation_type"]["all_reduce"]["count"] == 4


def test_profiling_works_on_this_machine(run_python: RunPython) -> None:
    code = "from test_profiling_framework import test_torch_operations_profiling as t; t(); print('seen')"
    done = run_python("-c", code, env=BESIDE | {"OMP_NUM_THREADS": "1"})
    assert (done.returncode, done.stdout.strip().endswith("seen")) == (0, True), done.stderr
