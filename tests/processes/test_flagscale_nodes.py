"""A real training over two nodes: each has its own name, process table and torchrun; what they share is the
log directory.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.processes import flagscale as fs
from tests.processes import padded_stages

pytestmark = [pytest.mark.host, pytest.mark.alone]

APART = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
PER_NODE = 2
SLOW = PER_NODE * 2 - 1  # the last rank of the second node


@pytest.fixture
def can_part() -> None:
    """Skips the test where nobody may make namespaces."""
    tried = subprocess.run([*APART, "hostname", "apart"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"needs the right to make namespaces: {tried.stderr.strip()}")


def node(number: int, port: int, directory: str, iterations: int) -> list[str]:
    """The command of one node."""
    script = [padded_stages.__file__, fs.train_gpt(), *fs.TINY, "--micro-batch-size", 1, "--vocab-size", 4200]
    monitor = [
        "--enable-perf-monitor",
        "--perf-breakdown",
        "--perf-log-interval",
        5,
        "--perf-log-dir",
        directory,
    ]
    words = fs.launched(*map(str, [*script, "--train-iters", iterations, *monitor]))
    torchrun = fs.torchrun(PER_NODE, "--nnodes=2", f"--node_rank={number}", f"--master_port={port}", *words)
    return [*APART, "sh", "-c", f"hostname node{number} && exec {shlex.join(torchrun)}"]


def run_nodes(directories: tuple[str, str], cwd: Path) -> list[fs.Finished]:
    """Both nodes to their ends."""
    port, environment = fs.free_port(), {"GLOO_SOCKET_IFNAME": "lo", "SLOW_RANK": str(SLOW)}
    nodes = [
        fs.start(node(number, port, directory, 30), cwd, **environment)
        for number, directory in enumerate(directories)
    ]
    finished = [fs.finish(each) for each in nodes]
    assert [each.returncode for each in finished] == [0, 0], [each.output[-3000:] for each in finished]
    assert [len(each.lines) for each in finished] == [0, 30]  # the host prints on its last rank
    return finished


def test_the_ranks_of_another_node_are_heard_and_its_slow_one_is_named(
    can_part: None, tmp_path: Path
) -> None:
    run_nodes(("perf", "perf"), tmp_path)
    nodes = fs.records(tmp_path / "perf", "node")
    assert {(met["hostname"], rank) for met in nodes for rank in met["ranks"]} == {
        ("node0", 0),
        ("node0", 1),
        ("node1", 2),
        ("node1", 3),
    }
    named, *_ = fs.records(tmp_path / "perf", "straggler")
    assert (named["ranks"], named["hostname"], named["phase"]) == ([SLOW], "node1", "forward")
    last = fs.records(tmp_path / "perf", "ranks")[-1]
    assert (len(last["work_ns"]), last["silent"]) == (2 * PER_NODE, [])
    assert sorted(path.name.split("_")[1] for path in (tmp_path / "perf").glob("perf_*_*")) == [
        "metrics",
        "records",
        "summary",
    ]
    assert list((tmp_path / "perf").glob(".ranks_*")) == []


def test_a_node_that_cannot_reach_the_log_directory_costs_nothing_but_its_ranks(
    can_part: None, tmp_path: Path
) -> None:
    run_nodes(("perf", "elsewhere"), tmp_path)
    summary = fs.summary(tmp_path / "perf")
    assert (summary["ranks"]["heard"], summary["ranks"]["silent"], summary["failure_count"]) == (
        PER_NODE,
        [2, 3],
        0,
    )
    assert summary["totals"]["train_steps"] == 30
