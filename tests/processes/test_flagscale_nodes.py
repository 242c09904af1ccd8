"""A real training over two machines: each has its own network, name, process table, monotonic clock and
torchrun; what they share is the log directory, if that.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.machines import CABLE, Machine, two_machines
from tests.processes import flagscale as fs
from tests.processes import padded_stages

pytestmark = [pytest.mark.host, pytest.mark.alone]

PER_NODE = 2
SLOW = PER_NODE * 2 - 1  # the last rank of the second node
ITERATIONS = 30
# The slow rank sleeps for several steps' time of the others, however busy these are.
PADS = {"PADDED_FORWARD_S": "0.02", "PADDED_BACKWARD_S": "0.03", "PADDED_EXCESS_S": "0.4"}


def node(machines: tuple[Machine, Machine], number: int, port: int) -> list[str]:
    """The command of one node."""
    script = [
        padded_stages.__file__,
        fs.train_gpt(),
        *fs.SMALL,
        "--micro-batch-size",
        1,
        "--vocab-size",
        4200,
    ]
    monitor = ["--enable-perf-monitor", "--perf-breakdown", "--perf-max-overhead", 100]
    monitor += ["--perf-log-interval", 5, "--perf-log-dir"]
    words = fs.launched(*map(str, [*script, "--train-iters", ITERATIONS, *monitor, "perf"]))
    address = [f"--master_addr={machines[0].address}", f"--master_port={port}"]
    torchrun = fs.torchrun(PER_NODE, "--nnodes=2", f"--node_rank={number}", *address, *words)
    return machines[number].command(*torchrun)


def run_nodes(machines: tuple[Machine, Machine], cwd: Path) -> list[fs.Finished]:
    """Both nodes to their ends."""
    port, environment = fs.free_port(), {"GLOO_SOCKET_IFNAME": CABLE, "SLOW_RANK": str(SLOW), **PADS}
    nodes = [fs.start(node(machines, number, port), cwd, **environment) for number in range(2)]
    finished = [fs.finish(each) for each in nodes]
    assert [each.returncode for each in finished] == [0, 0], [each.output[-3000:] for each in finished]
    assert [len(each.lines) for each in finished] == [0, ITERATIONS]  # the host prints on its last rank
    return finished


def test_the_ranks_of_another_node_are_heard_and_its_slow_one_is_named(tmp_path: Path) -> None:
    with two_machines(tmp_path) as machines:
        run_nodes(machines, tmp_path)
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
    said = fs.summary(tmp_path / "perf")["ranks"]
    assert (said["nodes"], said["heard"], said["silent"]) == (2, 2 * PER_NODE, [])
    assert sorted(path.name.split("_")[1] for path in (tmp_path / "perf").glob("perf_*_*")) == [
        "metrics",
        "records",
        "summary",
    ]
    assert list((tmp_path / "perf").glob(".ranks_*")) == []


def test_a_node_that_has_a_log_directory_of_its_own_costs_nothing_but_its_ranks(tmp_path: Path) -> None:
    (tmp_path / "perf").mkdir()
    with two_machines(tmp_path) as machines:
        machines[1].own_directory(tmp_path / "perf")
        run_nodes(machines, tmp_path)
        assert machines[1].run("ls", "-A", tmp_path / "perf") == ""
    summary = fs.summary(tmp_path / "perf")
    assert (summary["ranks"]["heard"], summary["ranks"]["silent"], summary["failure_count"]) == (
        PER_NODE,
        [2, 3],
        0,
    )
    assert summary["totals"]["train_steps"] == ITERATIONS
