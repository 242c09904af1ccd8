"""A real training over two machines: each has its own network, name, process table, monotonic clock and
torchrun; what they share is the log directory, if that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.training.analysis.fold import read_report
from flagscale_perf.training.records import CapturedRecord
from tests.machines import AHEAD_S, CABLE, Machine, two_machines
from tests.processes import flagscale as fs
from tests.processes import padded_stages, warm
from tests.warm_ranks import torchrun_environment

pytestmark = pytest.mark.host

ITERATIONS = 30
SLOW = 3  # of four: the last rank of the second node
# The slow rank sleeps for several steps' time of the others, however busy these are.
PADS = {"PADDED_FORWARD_S": "0.02", "PADDED_BACKWARD_S": "0.03", "PADDED_EXCESS_S": "0.4"}


def node(
    machines: tuple[Machine, Machine], number: int, ranks: int, port: int, more: Sequence[str]
) -> list[str]:
    """The command of one node, with so many ranks and `more` arguments."""
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
    monitor += ["--perf-log-interval", 5, "--perf-capture-steps", 5, "--perf-log-dir"]
    words = fs.launched(*map(str, [*script, "--train-iters", ITERATIONS, *more, *monitor, "perf"]))
    address = [f"--master_addr={machines[0].address}", f"--master_port={port}"]
    torchrun = fs.torchrun(ranks, "--nnodes=2", f"--node_rank={number}", *address, *words)
    return machines[number].command(*torchrun)


@dataclass(frozen=True)
class Machines:
    """Both, and where a server of warm interpreters listens on each."""

    both: tuple[Machine, Machine]
    servers: list[str]


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with two_machines(tmp_path_factory.mktemp("machines")) as both:
        yield Machines(both, [warm.start_server(1, within=each.command()) for each in both])


def run_nodes(
    machines: Machines, ranks: int, cwd: Path, more: Sequence[str] = (), **environment: str
) -> None:
    """Both nodes to their ends, with so many ranks each."""
    port, environment = fs.free_port(), {"GLOO_SOCKET_IFNAME": CABLE, **PADS, **environment}
    nodes = []
    for number, server in enumerate(machines.servers):
        own = torchrun_environment(cwd, fs.environment()["PYTHONPATH"], server)
        nodes.append(fs.start(node(machines.both, number, ranks, port, more), cwd, **environment, **own))
    finished = [fs.finish(each) for each in nodes]
    assert [each.returncode for each in finished] == [0, 0], [each.output[-3000:] for each in finished]
    assert [len(each.lines) for each in finished] == [0, ITERATIONS]  # the host prints on its last rank


def test_the_ranks_of_another_node_are_heard_and_its_slow_one_is_named(
    machines: Machines, tmp_path: Path
) -> None:
    run_nodes(machines, 2, tmp_path, SLOW_RANK=str(SLOW))
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
    assert (len(last["work_ns"]), last["silent"]) == (4, [])
    session = open_session(tmp_path / "perf")
    known = dict.fromkeys((step.start_ns, step.rank // 2) for step in session.records(CapturedRecord))
    for at_ns, number in known:
        move, uncertainty_ns = session.clocks.mover("node1"), session.clocks.uncertainty_ns("node1", at_ns)
        assert move is not None and uncertainty_ns is not None
        assert not number or abs(at_ns - AHEAD_S * NS_PER_S - move(at_ns)) <= uncertainty_ns < NS_PER_S
    assert {number for _, number in known} == {0, 1}
    captured = read_report(session).captured
    assert captured is not None and captured.clocks[0].startswith("clock of node1: +1,000,000")
    assert (captured.slow[0].rank, captured.slow[0].part, captured.links) == (SLOW, "Forward", [])
    said = fs.summary(tmp_path / "perf")["ranks"]
    assert (said["nodes"], said["heard"], said["silent"]) == (2, 4, [])
    assert sorted(path.name.split("_")[1] for path in (tmp_path / "perf").glob("perf_*_*")) == [
        "metrics",
        "records",
        "summary",
    ]
    assert list((tmp_path / "perf").glob(".ranks_*")) == []


def test_a_pipeline_over_both_machines_is_replayed_on_one_clock(machines: Machines, tmp_path: Path) -> None:
    """The second machine has the second stage, and a clock that is days ahead."""
    run_nodes(machines, 2, tmp_path, ["--pipeline-model-parallel-size", "2"], SLOW_RANK=str(SLOW))
    report = read_report(open_session(tmp_path / "perf"))
    assert report.captured is not None and report.captured.not_replayed == ""
    path = report.critical_path
    assert path is not None
    assert path.rows[0].rank == SLOW
    assert path.rows[0].slope is not None and path.rows[0].slope > 0.9
    assert sum(row.share for row in path.rows) == pytest.approx(1)


def test_a_node_that_has_a_log_directory_of_its_own_costs_nothing_but_its_ranks(
    machines: Machines, tmp_path: Path
) -> None:
    (tmp_path / "perf").mkdir()
    other = machines.both[1]
    other.own_directory(tmp_path / "perf")
    run_nodes(machines, 1, tmp_path)
    assert other.run("ls", "-A", tmp_path / "perf") == ""
    summary = fs.summary(tmp_path / "perf")
    ranks = summary["ranks"]
    assert (ranks["heard"], ranks["silent"], summary["failure_count"]) == (1, [1], 0)
    assert summary["totals"]["train_steps"] == ITERATIONS
