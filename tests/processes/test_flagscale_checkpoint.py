"""What the real FlagScale saves with the monitor on: the checkpoint of a run without it, and nothing in it
that needs this package.
"""

import json
from pathlib import Path

import pytest

from tests.processes.flagscale import TINY, environment, launched, run, torchrun, train_gpt

ITERS = 4
# Reads a checkpoint where this package cannot be imported; prints the arguments' types and a digest of every
# tensor.
READER = """
import hashlib, json, sys
sys.modules["flagscale_perf"] = None
import torch
from pathlib import Path

def flat(value, path, found):
    if isinstance(value, dict):
        for key in value:
            flat(value[key], f"{path}/{key}", found)
    elif isinstance(value, (list, tuple)):
        for index, each in enumerate(value):
            flat(each, f"{path}/{index}", found)
    elif isinstance(value, torch.Tensor):
        content = value.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
        found[path] = hashlib.sha256(content).hexdigest()
    else:
        found[path] = repr(value)

(path,) = Path(sys.argv[1]).rglob("model_optim_rng.pt")
saved = torch.load(path, weights_only=False)
args = {name: [type(value).__module__, repr(value)] for name, value in vars(saved.pop("args")).items()}
found = {}
flat(saved, "", found)
json.dump([args, found], sys.stdout)
"""
OURS = {"enable_perf_monitor", "rehearse_on_cpu", "tensorboard"}


@pytest.mark.host
def test_a_checkpoint_is_the_same_and_opens_without_this_package(run_python, tmp_path: Path) -> None:
    read = {}
    for name, flags in {
        "off": [],
        "on": ["--enable-perf-monitor", "--perf-breakdown", "--perf-log-interval", "2"],
    }.items():
        command = torchrun(
            1, *launched(train_gpt(), *TINY, "--train-iters", str(ITERS), "--save", name, "--save-interval",
                         "2", "--ckpt-format", "torch"),
            *flags, *(["--perf-log-dir", "perf"] if flags else []),
        )  # fmt: skip
        done = run(command, tmp_path)
        assert done.returncode == 0, done.output
        seen = run_python(
            "-c",
            READER,
            tmp_path / name / f"iter_{ITERS:07}",
            env={"PYTHONPATH": environment()["PYTHONPATH"]},
        )
        assert seen.returncode == 0, seen.stderr
        read[name] = json.loads(seen.stdout)
    (args_off, saved_off), (args_on, saved_on) = read["off"], read["on"]
    assert saved_on == saved_off
    assert sum(value.isalnum() and len(value) == 64 for value in saved_on.values()) > 20
    differing = {name for name in args_off.keys() | args_on.keys() if args_off.get(name) != args_on.get(name)}
    assert {name for name in differing if not name.startswith("perf_")} == {"enable_perf_monitor", "save"}
    assert {module for name, (module, _) in args_on.items() if name.startswith("perf_") or name in OURS} == {
        "builtins"
    }
