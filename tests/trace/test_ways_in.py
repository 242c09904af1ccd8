"""A program that knows nothing of tracing is traced, by each of the ways in."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from flagscale_perf.hosts.autostart import PTH_LINE, PTH_NAME
from tests.trace.conftest import REPO, VARIABLES

PROGRAM = """
import json, logging, os, sys, tempfile, torch
{imports}
import ray
import transfer_queue
from omegaconf import OmegaConf
from tensordict import TensorDict


@ray.remote(num_cpus=1)
class Producer:
    def produce(self):
        transfer_queue.init()
        data = TensorDict({{"prompt": torch.arange(8).reshape(4, 2)}}, batch_size=4)
        transfer_queue.get_client().put(data=data, partition_id="train")
        return os.getpid()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as directory:
        ray.init(address="local", num_cpus=8, include_dashboard=False, logging_level=logging.ERROR,
                 _temp_dir=directory{runtime_env})
        one_unit = {{"backend": {{"SimpleStorage": {{"num_data_storage_units": 1}}}}}}
        transfer_queue.init(OmegaConf.create(one_unit))
        producer = Producer.remote()
        pid = ray.get(producer.produce.remote())
        client = transfer_queue.get_client()
        meta = client.get_meta(["prompt"], batch_size=4, partition_id="train", task_name="test")
        assert client.get_data(meta).batch_size == (4,)
        print("PIDS", json.dumps([os.getpid(), pid]))
        transfer_queue.close()
        ray.shutdown()
"""
HOOK = "flagscale_perf.hosts.transfer_queue.install.from_environment"
SWITCHES = {"TQ_TRACE_ENABLED": "1", "TQ_TRACE_DETAIL_ENABLED": "1", "VERL_LOGGING_LEVEL": "INFO"}
PROGRAMS = {way: (way, SWITCHES) for way in ("verl's plug-in", "flagscale-perf enable", "Ray's hook")} | {
    "switched off": ("verl's plug-in", {"TQ_TRACE_ENABLED": "0"})
}


class Ended(NamedTuple):
    """A program that has ended.

    Attributes:
        driver, worker: their pids.
        logs: which operations the log of each process has.
    """

    directory: Path
    driver: int
    worker: int
    logs: dict[int, list[str]]


def ended(tmp_path: Path, way: str, **switches: str) -> Ended:
    """Runs the program there."""
    site = tmp_path / "site"
    site.mkdir()
    if way == "verl's plug-in":
        (site / "flagscale_perf-0.dist-info").mkdir()
        (site / "flagscale_perf-0.dist-info/METADATA").write_text("Name: flagscale-perf\nVersion: 0\n")
        (site / "flagscale_perf-0.dist-info/entry_points.txt").write_text(
            "[verl.plugins]\nflagscale-perf = flagscale_perf.hosts.transfer_queue.verl_plugin\n"
        )
    elif way == "flagscale-perf enable":
        (site / PTH_NAME).write_text(PTH_LINE)
        (site / "sitecustomize.py").write_text(f"import site; site.addsitedir({str(site)!r})")
    program = tmp_path / "train.py"
    runtime_env = f", runtime_env={{'worker_process_setup_hook': {HOOK!r}}}"
    program.write_text(
        PROGRAM.format(
            imports="import verl" if way == "verl's plug-in" else "",
            runtime_env=runtime_env if way == "Ray's hook" else "",
        )
    )
    environment = os.environ | VARIABLES | switches | {"PYTHONPATH": f"{site}:{REPO}"}
    run = subprocess.run(
        [sys.executable, program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr[-4000:]
    driver, worker = json.loads(re.search("PIDS (.*)", run.stdout)[1])
    logs = {
        int(path.stem.rpartition("_")[2]): re.findall("stage=TQ_CLIENT_(...)_END", path.read_text())
        for path in (tmp_path / "logs/trace").rglob("tq_trace_*.log")
    }
    return Ended(tmp_path, driver, worker, logs)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Future[Ended]]:
    """All of them, two at a time: half of what each takes is waiting for its Ray."""
    with ThreadPoolExecutor(2) as pool:
        return {
            name: pool.submit(ended, tmp_path_factory.mktemp("program"), way, **switches)
            for name, (way, switches) in PROGRAMS.items()
        }


@pytest.mark.parametrize("way", ["verl's plug-in", "flagscale-perf enable"])
def test_driver_and_workers_are_traced(programs: Mapping[str, Future[Ended]], way: str) -> None:
    found = programs[way].result()
    assert found.logs == {found.driver: ["GET"], found.worker: ["PUT"]}


def test_rays_hook_traces_the_workers(programs: Mapping[str, Future[Ended]]) -> None:
    found = programs["Ray's hook"].result()
    assert found.logs == {found.worker: ["PUT"]}


def test_switched_off_nothing_is_traced(programs: Mapping[str, Future[Ended]]) -> None:
    found = programs["switched off"].result()
    assert found.logs == {}
    assert not (found.directory / "logs").exists()
