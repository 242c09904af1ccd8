"""What the real FlagScale saves with the monitor on: the checkpoint of a run without it, and nothing in it
that needs this package.
"""

import json
from pathlib import Path

import pytest

from tests.processes import flagscale as fs
from tests.processes.shared_runs import ITERATIONS, with_monitor, without

# Reads checkpoints where this package cannot be imported; writes the arguments' types and a digest of every
# tensor of each.
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

def read(directory):
    (path,) = Path(directory).rglob("model_optim_rng.pt")
    saved = torch.load(path, weights_only=False)
    args = {name: [type(value).__module__, repr(value)] for name, value in vars(saved.pop("args")).items()}
    found = {}
    flat(saved, "", found)
    return args, found

with open("read.json", "w") as file:
    json.dump([read(each) for each in sys.argv[1:]], file)
"""
OURS = {"enable_perf_monitor", "rehearse_on_cpu", "tensorboard"}


@pytest.mark.host
def test_a_checkpoint_is_the_same_and_opens_without_this_package(tmp_path_factory, tmp_path: Path) -> None:
    runs = [run(tmp_path_factory, "1 rank") for run in (without, with_monitor)]
    (tmp_path / "reader.py").write_text(READER)
    saved = [each.directory / "ckpt" / f"iter_{ITERATIONS:07}" for each in runs]
    done = fs.run(fs.workers(1, "reader.py", *saved), tmp_path)
    assert done.returncode == 0, done.output
    (args_off, saved_off), (args_on, saved_on) = json.loads((tmp_path / "read.json").read_text())
    assert saved_on == saved_off
    assert sum(value.isalnum() and len(value) == 64 for value in saved_on.values()) > 20
    differing = {name for name in args_off.keys() | args_on.keys() if args_off.get(name) != args_on.get(name)}
    assert {name for name in differing if not name.startswith("perf_")} == {"enable_perf_monitor"}
    assert {module for name, (module, _) in args_on.items() if name.startswith("perf_") or name in OURS} == {
        "builtins"
    }
