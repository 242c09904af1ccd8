"""The host's own W&B run, offline, in a process that trains."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("wandb") is None,
    reason="wandb is not installed: it is a package of the host, and no host here needs it",
)

TRAINING = """
import json, sys
import wandb
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.perf_logger import PerfLogger
from tests.fakes import make_facts, make_step

run = wandb.init(mode="offline", dir=sys.argv[1], settings=wandb.Settings(silent=True))
config = PerfConfig(enable_perf_monitor=True, perf_log_dir=sys.argv[1] + "/logs", perf_wandb=True)
logger = PerfLogger.start(config, make_facts(), print)
for iteration in range(1, 21):
    logger.step(make_step(iteration))
    run.log({"loss": 1.0 / iteration}, step=iteration)
logger.close("completed", 60)
run.log({"loss": 0.01}, step=21, commit=True)
print(json.dumps({key: value for key, value in dict(run.summary).items() if isinstance(value, int | float)}))
run.finish()
"""


def test_the_figures_are_in_the_run_and_the_hosts_steps_are_its_own(tmp_path: Path, run_python) -> None:
    done = run_python("-c", TRAINING, tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    summary = json.loads(line)
    assert (summary["loss"], summary["_step"]) == (0.01, 21)
    assert (summary["flagscale_perf/iteration"], summary["flagscale_perf/performance/tokens_per_second"]) == (
        20,
        10240,
    )
    assert list(tmp_path.rglob("run-*.wandb"))
