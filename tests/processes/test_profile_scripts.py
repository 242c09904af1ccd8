"""The tools under the requirement's names, as they are called."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.conftest import RunPython
from tests.profile_runs import make_profile

REPO = Path(__file__).parents[2]
SCRIPTS = REPO / "scripts"
BESIDE = {"PYTHONPATH": f"{SCRIPTS}{os.pathsep}{REPO}"}
NAMES = ("qwen3_detailed_profiling", "qwen3_visualizer", "run_qwen3_profiling_experiment",
         "qwen3_comm_profiler", "test_profiling_framework")  # fmt: skip
NOWHERE = "'nowhere' does not exist"
BAD = (
    ("qwen3_detailed_profiling", ("--pp", "2", "--mode", "generate"), "--pp 2 --mode generate: stages"),
    ("qwen3_visualizer", ("nowhere",), NOWHERE),
    ("run_qwen3_profiling_experiment", ("--model", "nowhere"), "there is no nowhere/config.json"),
    ("qwen3_comm_profiler", ("nowhere",), NOWHERE),
    ("test_profiling_framework", ("--nothing",), "unrecognized arguments: --nothing"),
)


@pytest.mark.parametrize("name", NAMES)
def test_each_can_be_imported_and_says_how_it_is_used(run_python: RunPython, name: str) -> None:
    imported = run_python("-c", f"import {name}; print({name}.__doc__)", env=BESIDE)
    assert (imported.returncode, f"python scripts/{name}.py" in imported.stdout) == (0, True)
    helped = run_python(SCRIPTS / f"{name}.py", "--help")
    assert (helped.returncode, helped.stdout.startswith("usage: "), helped.stderr) == (0, True, "")


@pytest.mark.parametrize(("name", "typed", "message"), BAD)
def test_a_mistake_is_told_without_a_traceback(
    run_python: RunPython, name: str, typed: tuple[str, ...], message: str
) -> None:
    done = run_python(SCRIPTS / f"{name}.py", *typed)
    assert (done.returncode, message in done.stderr, "Traceback" in done.stderr) == (2, True, False)


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
