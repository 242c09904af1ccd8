"""What vLLM's processes are started with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.bench.serving.cases import Case, arms_of
from flagscale_perf.bench.serving.driver import Driver, Load, Setup
from flagscale_perf.bench.serving.model import read_model
from flagscale_perf.bench.serving.vllm_python import Devices
from flagscale_perf.spine.errors import PerfError
from tests.serving import fake_python

ARMS = arms_of([2], [])
CORES = Devices("core", tuple("0123"))


def setup(directory: Path, devices: Devices = CORES, **changed: object) -> Setup:
    fields = {
        "python": fake_python(directory), "model": read_model(None), "devices": devices, "longest": 64,
        "in_flight": 4, "directory": directory / "out", "is_eager": True,
    }  # fmt: skip
    return Setup(**fields | changed)  # type: ignore[arg-type]


def test_arms_differ_in_nothing_but_their_size(tmp_path: Path) -> None:
    made = setup(tmp_path, profiled={"TP 2": {"FLAGSCALE_PERF_PROFILE_STEPS": "1-3"}})
    one, _, two = (made.start(arm, ARMS, tmp_path / "served", None) for arm in ARMS)
    differ = [(a, b) for a, b in zip(one.options, two.options, strict=True) if a != b]
    assert differ == [("1", "2")]
    options = list(one.options)
    assert options[options.index("--num-gpu-blocks-override") + 1] == "5"  # one of 128 tokens for each of 4
    assert {"--no-enable-prefix-caching", "--enforce-eager", "dummy"} <= set(one.options)
    bind = "VLLM_CPU_OMP_THREADS_BIND"
    assert (one.environment[bind], two.environment[bind]) == ("0,1", "0,1|2,3")
    assert one.environment["VLLM_CPU_KVCACHE_SPACE"] == two.environment["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert "FLAGSCALE_PERF_PROFILE_STEPS" not in one.environment
    assert two.environment["PYTHONPATH"].startswith(f"{tmp_path}/out/plugin")


def test_arms_on_gpus_share_their_memory(tmp_path: Path) -> None:
    made = setup(tmp_path, Devices("GPU", ("0", "1")), is_eager=False)
    options = list(made.start(ARMS[2], ARMS, tmp_path / "served", None).options)
    assert options[options.index("--gpu-memory-utilization") + 1] == "0.450"
    assert options[options.index("--num-gpu-blocks-override") + 1] == "17"  # 4 of 16 tokens for each of 4
    assert "--enforce-eager" not in options


def test_servers_and_client_run_together_and_end_together(tmp_path: Path) -> None:
    with Driver(setup(tmp_path), ARMS) as driver:
        assert driver.server(ARMS[0]) is driver.server(ARMS[1])
        about = json.loads(driver.server(ARMS[2]).ask("/about") or "{}")
        assert (about["tensor"], about["longest"]) == (2, "64")
        load = Load(Case(2, 10, 3), 4, 2, 0, 1)
        assert driver.run(ARMS[0], load).ttft == [0.01] * 4
        assert driver.run(ARMS[2], load).ttft == [0.005] * 4
        server = driver.server(ARMS[2])
    assert not server.is_alive
    with pytest.raises(PerfError, match="nothing has been started"):
        driver.run(ARMS[0], load)


def test_blocks_are_left_to_vllm_where_they_are_of_another_size_or_the_user_says_so(tmp_path: Path) -> None:
    plain = setup(tmp_path)
    latent = replace(plain.model, config={**plain.model.config, "kv_lora_rank": 512})
    hybrid = replace(plain.model, config={**plain.model.config, "layer_types": ["linear_attention"]})
    made = (
        plain, replace(plain, blocks=7), replace(plain, blocks=0), replace(plain, model=latent),
        replace(plain, model=hybrid),
    )  # fmt: skip
    assert [one.cache_blocks for one in made] == [5, 7, None, None, None]
