"""What vLLM's processes are started with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flagscale_perf.bench.serving.cases import Case, Load, arms_of
from flagscale_perf.bench.serving.driver import Driver, start_of
from flagscale_perf.bench.serving.model import read_model
from flagscale_perf.bench.serving.options import Chosen
from flagscale_perf.bench.serving.vllm_python import Devices
from flagscale_perf.spine.errors import PerfError
from tests.serving import fake_python

ARMS = arms_of([2], [])
CORES = Devices("core", tuple("0123"))


def chosen(directory: Path, devices: Devices = CORES, **changed: object) -> Chosen:
    fields = {
        "python": fake_python(directory),
        "model": read_model(None, 64),
        "devices": devices,
        "arms": ARMS,
        "cases": [Case(2, 10, 3)],
        "repeats": 1,
        "left_out": [],
        "directory": directory / "out",
        "is_eager": True,
    }
    return Chosen(**fields | changed)  # type: ignore[arg-type]


def test_arms_differ_in_nothing_but_their_size(tmp_path: Path) -> None:
    one, two = (start_of(chosen(tmp_path), 4, arm) for arm in ARMS)
    differ = [(a, b) for a, b in zip(one.options, two.options, strict=True) if a != b]
    assert differ == [("1", "2")]
    assert {"--no-enable-prefix-caching", "--enforce-eager", "dummy"} <= set(one.options)
    bind = "VLLM_CPU_OMP_THREADS_BIND"
    assert (one.environment[bind], two.environment[bind]) == ("0,1", "0,1|2,3")
    assert one.environment["VLLM_CPU_KVCACHE_SPACE"] == two.environment["VLLM_CPU_KVCACHE_SPACE"] == "1"


def test_one_arm_runs_at_a_time(tmp_path: Path) -> None:
    driver, load = Driver(chosen(tmp_path), 4), Load(Case(2, 10, 3), 4, 2)
    with driver.serve(ARMS[0]):
        assert driver.run(load).ttft == [0.01] * 4
        server = driver._server
    assert not server.is_alive
    with driver.serve(ARMS[1]):
        about = json.loads(driver._server.ask("/about") or "{}")
        assert (about["tensor"], about["longest"]) == (2, "64")
        assert driver.run(load).ttft == [0.005] * 4


def test_a_program_that_is_none_is_said(tmp_path: Path) -> None:
    driver = Driver(chosen(tmp_path, python=str(tmp_path / "nothing")), 4)
    with pytest.raises(PerfError, match="nothing: cannot be run"), driver.serve(ARMS[0]):
        pass
