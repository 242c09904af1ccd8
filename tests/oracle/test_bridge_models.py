"""The run_config.yaml that Megatron-Bridge writes of its own models is counted as Bridge builds them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flagscale_perf.cli import main
from tests.oracle import bridge_models
from tests.oracle.real_steps import bridge_path
from tests.processes import flagscale as fs

pytestmark = pytest.mark.host


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bridge")
    words = fs.workers(1, *fs.launched(bridge_models.__file__, directory))
    finished = fs.run(words, directory, PYTHONPATH=bridge_path())
    assert finished.returncode == 0, finished.output[-4000:]
    return directory


@pytest.mark.parametrize("name", bridge_models.MODELS)
def test_weights_of_what_bridge_builds(name: str, written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flops", "--args", str(written / f"{name}.yaml"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    weights = json.loads((written / "weights.json").read_text())[name]
    assert (said["family"], said["parameters"]) == (bridge_models.MODELS[name][0], weights)
