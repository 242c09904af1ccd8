"""What vLLM's own bench is given where its steps are profiled; a real vLLM: tests/vllm."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.bench.serving import profiled
from flagscale_perf.bench.serving.profiled import check, profile
from flagscale_perf.bench.serving.vllm_python import Devices
from flagscale_perf.profile.options import ProfileOptions
from flagscale_perf.profile.standalone.model import GENERATE, TRAIN, Run
from flagscale_perf.spine.errors import PerfError
from tests.profile_runs import make_profile

SMALL = Run(None, 3, 1, 32, 2, 64, GENERATE, Path(), 2, 1)


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiled, "devices", lambda: Devices("core", ("0", "1")))


def test_the_bench_runs_as_many_steps_as_the_window_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[Any] = []

    def run(words: list[str], env: dict[str, str], **_: Any) -> int:
        called.append((words, env))
        make_profile().write(tmp_path)
        return 0

    monkeypatch.setattr(subprocess, "call", run)
    profile(replace(SMALL, directory=tmp_path))
    ((words, environment),) = called
    given = dict(zip(words, words[1:], strict=False))
    assert (given["--tensor-parallel-size"], given["--batch-size"], given["--load-format"]) == (
        "2",
        "2",
        "dummy",
    )
    # step 0 of a phase is never profiled; 3 profiled, as many clean, and one with shapes and memory follow
    assert (given["--num-iters-warmup"], given["--num-iters"]) == ("1", "8")
    options = ProfileOptions.of(environment)
    assert (str(options.steps), options.directory) == ("1-3", tmp_path)
    assert environment["VLLM_CPU_OMP_THREADS_BIND"] == "0|1"
    assert environment["PYTHONPATH"].split(":")[0] == str(tmp_path / "vllm" / "plugin")
    config = json.loads((tmp_path / "vllm" / "model" / "config.json").read_text())
    assert (config["model_type"], config["vocab_size"]) == ("qwen3", 16_384)


def test_vllms_own_reason_is_given_where_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(words: list[str], stdout: Any, **_: Any) -> int:
        stdout.write(b"INFO all is well\nValueError: no such model\n")
        return 1

    monkeypatch.setattr(subprocess, "call", fail)
    with pytest.raises(PerfError, match="^vLLM ended with exit code 1: ValueError: no such model"):
        profile(replace(SMALL, directory=tmp_path))


def test_a_bench_that_leaves_no_profile_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_profile().write(tmp_path)  # of another batch
    monkeypatch.setattr(subprocess, "call", lambda *_, **__: 0)
    with pytest.raises(PerfError, match="^vLLM ended without a profile; see .*vllm.log$"):
        profile(replace(SMALL, directory=tmp_path))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tokens": 60}, "--num-tokens 60 and 8 of output are more than --max-seq-len 64"),
        ({"mode": TRAIN}, "--mode train: vLLM does not train"),
        ({"pipeline": 2}, "--tp 2 --pp 2 need 4 cores, and there are 2"),
    ],
)
def test_what_cannot_be_run_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(PerfError, match=said):
        check(replace(SMALL, **changed))
