"""An exception inside every hook, one at a time: same losses, same exit code, one line of complaint."""

import pytest

from tests.processes import flagscale as fs

pytestmark = pytest.mark.host

SCRIPT = """
import importlib, os, runpy, sys
target = os.environ.get("INJECT")
if target:
    module, owner, name = target.split(":")
    holder = getattr(importlib.import_module(module), owner)
    if owner == "Budget":  # judged after 20 steps at the earliest: longer than this training
        importlib.import_module("flagscale_perf.hooks").JUDGED_STEPS = (2, 2)
    def fault(*args, **kwargs):
        raise RuntimeError("injected")
    setattr(holder, name, fault)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

# One inside each event, and one in each thing the events lean on. The end of a pause or phase fails like its
# beginning.
TARGETS = {
    "train_start": "flagscale_perf.hosts.megatron:MegatronLoop:facts",
    "logger start": "flagscale_perf.perf_logger:PerfLogger:start",
    "step_start": "flagscale_perf.perf_metrics:StepMeter:step_start",
    "step_end": "flagscale_perf.perf_metrics:StepMeter:step_end",
    "pause": "flagscale_perf.perf_metrics:StepMeter:pause",
    "data_skipped": "flagscale_perf.perf_metrics:StepMeter:data_skipped",
    "phase begin": "flagscale_perf.device.timeline:HostTimeline:begin",
    "shedding": "flagscale_perf.training.recording.budget:Budget:judge",
    "ring": "flagscale_perf.perf_logger:PerfLogger:step",
    "finish": "flagscale_perf.perf_metrics:StepMeter:finish",
    "close": "flagscale_perf.perf_logger:PerfLogger:close",
}
QUICK = ("train_start", "step_end", "phase begin", "ring", "close")


def train(tmp_path, **env):
    (tmp_path / "inject.py").write_text(SCRIPT)
    arguments = [
        *fs.SMALL,
        "--train-iters",
        "5",
        "--iterations-to-skip",
        "2",
        "--enable-perf-monitor",
        "--perf-breakdown",
    ]
    arguments += [
        "--perf-log-dir",
        "perf",
        "--save",
        "saved",
        "--save-interval",
        "2",
        "--ckpt-format",
        "torch",
    ]
    return fs.run(fs.workers(1, *fs.launched("inject.py", fs.train_gpt(), *arguments)), tmp_path, **env)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    return train(tmp_path_factory.mktemp("healthy"))


@pytest.mark.parametrize(
    "event", [event if event in QUICK else pytest.param(event, marks=pytest.mark.long) for event in TARGETS]
)
def test_the_training_does_not_notice(event, healthy, tmp_path):
    finished = train(tmp_path, INJECT=TARGETS[event])
    assert finished.returncode == healthy.returncode == 0, finished.output[-3000:]
    assert finished.lines == healthy.lines
    assert len(finished.lines) == 4
    complaints = [line for line in finished.output.splitlines() if "RuntimeError: injected" in line]
    assert len(complaints) == 1, finished.output[-3000:]
    assert complaints[0].startswith("flagscale_perf: monitor switched off at ")
    assert "Traceback" not in finished.output
    assert "switched off" not in healthy.output
