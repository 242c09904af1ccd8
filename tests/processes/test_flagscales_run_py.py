"""FlagScale's own run.py: each command line of docs/hosts.md, typed in FlagScale's root
directory, only writing the script (a real run: test_flagscale_enable.py).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from flagscale_perf.training.analysis.patch import Patch, Setting, lines_of
from tests.fakes import make_facts
from tests.processes import flagscale as fs

pytestmark = pytest.mark.host

REPO = Path(__file__).parents[2]
PAGE = (REPO / "docs/hosts.md").read_text(encoding="utf-8")
LINES = [line for line in re.findall(r"`([^`]+)`", PAGE) if line.startswith("python run.py --config-path")]
WITH_PLUS, FROM_FILE = LINES
CONF = Path("examples/aquila/conf")
FLAGS = "--enable-perf-monitor --perf-log-interval 10 --perf-log-dir "
LATER_SCRIPT = "experiment.task.entrypoint=./flagscale/train/megatron/train_gpt.py"


def with_run_py(root: Path) -> Path:
    """Adds FlagScale's run.py and its example, as copies that may be changed, to a tree."""
    shutil.copy(fs.root() / "run.py", root)
    shutil.copytree(fs.root() / CONF, root / CONF)
    return root


@pytest.fixture
def older(tmp_path):
    """FlagScale 0.8.0."""
    root = tmp_path / "FlagScale"
    root.mkdir()
    for name in ("flagscale", "third_party"):
        (root / name).symlink_to(fs.root() / name)
    return with_run_py(root)


@pytest.fixture
def later(tmp_path):
    """The shape of FlagScale 1.x."""
    return with_run_py(fs.make_later_tree(tmp_path / "FlagScale"))


def dryrun(root: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Types the line in that directory, so that nothing is started."""
    words = line.replace("action=run", "action=dryrun").replace("PREFIX", "data")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return subprocess.run(
        ["bash", "-c", words],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=fs.DEADLINE_S,
        env=fs.environment(PATH=path, PYTHONPATH=str(root)),
    )


def script(root: Path, done: subprocess.CompletedProcess[str]) -> str:
    """What would be started."""
    assert done.returncode == 0, done.stdout + done.stderr
    return (root / "outputs/logs/scripts/host_0_localhost_run.sh").read_text()


def test_keys_with_a_plus(older) -> None:
    text = script(older, dryrun(older, WITH_PLUS))
    assert f"{FLAGS}{older}/outputs/logs/perf_monitor " in text
    assert "./flagscale/train/train_gpt.py " in text


def test_a_file_of_ours_beside_flagscales_own(older) -> None:
    shutil.copy(REPO / "conf/train/7b_with_perf_monitor.yaml", older / CONF / "train")
    text = script(older, dryrun(older, FROM_FILE))
    assert f"{FLAGS}logs/perf_monitor " in text
    assert "--wandb-project train-aquila-7B " in text  # of FlagScale's 7b.yaml


def test_keys_in_a_yaml_of_ones_own(older) -> None:
    path = older / CONF / "train/7b.yaml"
    train = yaml.safe_load(path.read_text())
    train["system"] |= {"enable_perf_monitor": True, "perf_log_interval": 10, "perf_log_dir": "logs/perf"}
    path.write_text(yaml.safe_dump(train))
    line = WITH_PLUS.partition(" +")[0]
    text = script(older, dryrun(older, f"{line} train.system.perf_log_interval=5"))
    assert "--enable-perf-monitor " in text and "--perf-log-interval 5 " in text


def test_an_overlay_as_it_is_printed(older) -> None:
    advised = [
        Setting("--num-workers", 4, "data_stall"),
        Setting("--save-interval", 500, "checkpoint"),
        Setting("--async-save", True, "checkpoint"),
        Setting("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", "fragmentation"),
    ]
    lines = lines_of(Patch(advised, [("--data-cache-path", "data_stall")]), make_facts(host="FlagScale"), "A")
    (older / CONF / "patch").mkdir()
    (older / CONF / "patch/advised.yaml").write_text("\n".join(lines) + "\n")
    text = script(older, dryrun(older, f"{WITH_PLUS} +patch=advised"))
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True torchrun" in text
    words = shlex.split(next(line for line in text.splitlines() if line.startswith("cmd=")).partition("=")[2])
    (command,) = words
    assert command.endswith(" --num-workers 4 --save-interval 500 --async-save")  # the last one counts
    assert "--data-cache-path" not in command


def test_without_the_plus_hydra_says_what_the_page_quotes(older) -> None:
    done = dryrun(older, WITH_PLUS.replace("+", ""))
    assert done.returncode == 1
    first, second, *_ = done.stderr.splitlines()
    assert f"`{first} {second}`" in " ".join(PAGE.split())


def test_the_shape_of_flagscale_1(later) -> None:
    text = script(later, dryrun(later, f"{WITH_PLUS} {LATER_SCRIPT}"))
    assert f"{FLAGS}{later}/outputs/logs/perf_monitor " in text
    assert "./flagscale/train/megatron/train_gpt.py " in text
