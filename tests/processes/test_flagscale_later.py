"""A tree shaped like FlagScale 1.x: its script is flagscale/train/megatron/train_gpt.py, the loop is
Megatron-LM's own.

Built from the Megatron-LM that FlagScale 0.8.0 brings along: there is no release of that shape to install.
"""

import os
import sys

import pytest

from flagscale_perf.hosts.autostart import PTH_LINE, PTH_NAME
from tests.processes import flagscale as fs
from tests.processes.test_flagscale_run import assert_phases_add_up

pytestmark = pytest.mark.host

WORDS = ["--train-iters", "4", "--enable-perf-monitor", "--perf-log-dir", "perf", "--perf-log-interval", "2"]
WORDS += ["--perf-breakdown", "--perf-max-overhead", "100"]


@pytest.fixture
def tree(tmp_path):
    """The tree's root."""
    return fs.make_later_tree(tmp_path / "tree")


def check(finished, directory):
    assert finished.returncode == 0, finished.output[-3000:]
    steps = fs.records(directory / "perf")
    assert (
        [step["iteration"] for step in steps] == [line.iteration for line in finished.logged] == [1, 2, 3, 4]
    )
    assert [step["samples"] for step in steps] == [4, 4, 4, 4]
    named = assert_phases_add_up(fs.records(directory / "perf", "phases"), steps)
    assert {
        "forward_ns",
        "backward_ns",
        "optimizer_inner_step_ns",
        "zero_grad_ns",
        "exposed_stat_comm_ns",
    } <= named
    facts = fs.records(directory / "perf", "header")[0]["facts"]
    assert (facts["host"], facts["script"], facts["missing"]) == (
        "Megatron-LM (core 0.15.0rc5)",
        "train_gpt.py",
        [fs.NO_COUNTERS],
    )


def test_through_the_launcher_and_by_the_line_of_enable(tree, tmp_path):
    script = tree / "flagscale" / "train" / "megatron" / "train_gpt.py"
    environment = fs.environment()["PYTHONPATH"].split(os.pathsep)[2:]
    path = os.pathsep.join([str(tree), *environment])
    launched, enabled = tmp_path / "launched", tmp_path / "enabled"
    launched.mkdir()
    command = fs.workers(1, *fs.launched(script, *fs.SMALL, *WORDS))
    check(fs.run(command, launched, PYTHONPATH=path), launched)

    site = tmp_path / "site"
    site.mkdir()
    (site / PTH_NAME).write_text(PTH_LINE)
    (site / "sitecustomize.py").write_text(f"import site; site.addsitedir({str(site)!r})")
    enabled.mkdir()
    # Python reads the line when it starts: not in a fork.
    command, path = [sys.executable, str(script), *fs.SMALL, *WORDS], os.pathsep.join([str(site), path])
    job = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    check(fs.run(command, enabled, PYTHONPATH=path, MASTER_PORT=str(fs.free_port()), **job), enabled)
