"""Where vLLM is, and what its processes are given."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flagscale_perf.bench.serving.vllm_python import (
    clean_environment,
    devices,
    find_python,
    plugin_path,
    rank_cores,
    version_of,
)
from flagscale_perf.spine.errors import PerfError
from tests.conftest import RunPython
from tests.serving import fake_python


def test_a_python_with_vllm_is_taken_and_one_without_refused(tmp_path: Path) -> None:
    python = fake_python(tmp_path)
    assert find_python(python) == python
    with pytest.raises(PerfError, match="has no package vllm; give --vllm-python PROGRAM.*`make venv-vllm`"):
        find_python(sys.executable)
    with pytest.raises(PerfError, match="^--vllm-python .*nothing: no such program"):
        find_python(str(tmp_path / "nothing"))


def test_a_vllm_without_a_package_has_no_version(tmp_path: Path) -> None:
    assert version_of(fake_python(tmp_path)) is None


def test_a_rank_is_the_same_thing_in_every_arm() -> None:
    assert rank_cores(1, 2, ("0", "1", "2", "3")) == "0,1"
    assert rank_cores(2, 2, ("0", "1", "2", "3")) == "0,1|2,3"
    assert rank_cores(1, 1, ("0", "1")) == "0,1"


def test_vllm_asks_no_proxy_and_downloads_nothing() -> None:
    made = clean_environment({"no_proxy": "intern", "FLAGSCALE_PERF_PROFILE_STEPS": "1", "HOME": "/h"})
    assert made == {
        "no_proxy": "intern,127.0.0.1,localhost",
        "NO_PROXY": "intern,127.0.0.1,localhost",
        "HOME": "/h",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }


def test_the_plugin_is_found_on_the_path(tmp_path: Path, run_python: RunPython) -> None:
    path = plugin_path(tmp_path / "plugin")
    assert plugin_path(tmp_path / "plugin") == path  # again, beside another arm
    code = (
        "from importlib.metadata import entry_points\n"
        "import flagscale_perf\n"
        "print([one.value for one in entry_points(group='vllm.general_plugins')], flagscale_perf.__file__)\n"
    )
    ended = run_python("-c", code, env={"PYTHONPATH": str(path)})
    assert ended.stdout == (
        f"['flagscale_perf.hosts.profiling.vllm:from_environment'] {path}/flagscale_perf/__init__.py\n"
    )


def test_there_is_at_least_one_device() -> None:
    assert devices().count >= 1 and devices().what in ("core", "GPU")
