"""A training that hangs says which rank it waits for, where that is, and when it goes on; one that evaluates
or saves for long says nothing.

One real run hangs in one way after the other. A second or two of silence are a hang here (`LEAST_VARIABLE`).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flagscale_perf.training.ranks.hang import LEAST_VARIABLE
from tests.machines import CABLE, two_machines
from tests.processes import flagscale as fs
from tests.processes import hanging, padded_stages, warm
from tests.warm_ranks import torchrun_environment

pytestmark = pytest.mark.host

PLAN = {"elsewhere": 6, "loader": 10, "locked": 14, "saving": 1}
SAVED_AT, STOPPED_FROM = 18, 20
MONITOR = (
    *("--enable-perf-monitor", "--perf-breakdown", "--perf-max-overhead", "100", "--perf-log-interval", "2"),
    *("--perf-log-dir", "perf"),
)
PHASES = {"elsewhere": "forward", "loader": "data_loading", "locked": "forward"}
# nobody reads a pipe meanwhile, and a full one is a hang
INTO_FILE = ("sh", "-c", 'exec "$@" > output 2>&1', "sh")
REPORT = [sys.executable, "-m", "flagscale_perf", "report", "perf"]
STACKS = [sys.executable, "-m", "flagscale_perf", "stacks", "perf"]


class Run:
    """A live run of two data-parallel ranks.

    Attributes:
        directory: in which it runs.
        stacks, reports: what `flagscale-perf stacks` and `report` have printed, by the way in which it hung.
        pids: of its ranks.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.stacks: dict[str, str] = {}
        self.reports: dict[str, str] = {}
        self.pids: dict[int, int] = {}

    def events(self, name: str) -> list[dict]:
        return [each for each in fs.records(self.directory / "perf", "event") if each["name"] == name]

    def wait(self, condition: Callable[[], object], what: str) -> None:
        fs.wait_until(lambda: bool(condition()), what)

    def go(self, way: str) -> None:
        (self.directory / f"go_{way}").touch()

    def iteration(self) -> int:
        return max((each["iteration"] for each in fs.records(self.directory / "perf")), default=0)


def run_file(run: Run) -> bool:
    return (run.directory / "perf").is_dir()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    run = Run(tmp_path_factory.mktemp("hang"))
    saving = ["--save", "ckpt", "--save-interval", str(SAVED_AT), "--ckpt-format", "torch"]
    words = [hanging.__file__, fs.train_gpt(), *fs.SMALL, *saving, "--train-iters", "60", *MONITOR]
    plan = " ".join(f"{way}@{call}" for way, call in PLAN.items())
    env = {"HANG_PLAN": plan, "HANG_RANK": "1", LEAST_VARIABLE: "1.5"}
    process = fs.start([*INTO_FILE, *fs.workers(2, *fs.launched(*words))], run.directory, **env)
    for number, way in enumerate(PHASES):
        run.wait(lambda number=number: run_file(run) and len(run.events("hang")) == 2 * number + 1, way)
        if way == "locked":
            asked = subprocess.run(
                [*STACKS, "--full"], cwd=run.directory, capture_output=True, text=True, timeout=fs.DEADLINE_S
            )
            assert asked.returncode == 0, asked.stderr
            run.stacks[way] = asked.stdout
        if way == "elsewhere":
            asked = subprocess.run(
                REPORT, cwd=run.directory, capture_output=True, text=True, timeout=fs.DEADLINE_S
            )
            assert asked.returncode == 0, asked.stderr
            run.reports[way] = asked.stdout
        run.go(way)
        run.wait(lambda number=number: len(run.events("hang")) == 2 * number + 2, f"the end of {way}")
    asked = subprocess.run(STACKS, cwd=run.directory, capture_output=True, text=True, timeout=fs.DEADLINE_S)
    assert asked.returncode == 0, asked.stderr
    run.stacks["saving"] = asked.stdout
    run.wait(lambda: run.iteration() == SAVED_AT - 1, "the checkpoint")
    for _ in range(2):  # as long as two hangs
        subprocess.run(STACKS, cwd=run.directory, capture_output=True, timeout=fs.DEADLINE_S)
    run.go("saving")
    run.wait(lambda: run.iteration() > STOPPED_FROM, "steps behind the checkpoint")
    run.pids = {rank["rank"]: rank["pid"] for rank in fs.records(run.directory / "perf", "doing")}
    os.kill(run.pids[1], signal.SIGSTOP)
    run.wait(lambda: len(run.events("hang")) == 2 * len(PHASES) + 1, "a stopped rank")
    os.kill(run.pids[1], signal.SIGCONT)
    finished = fs.finish(process)
    assert finished.returncode == 0, (run.directory / "output").read_text()[-3000:]
    yield run


@pytest.mark.parametrize("way", PHASES)
def test_the_rank_its_phase_and_its_place_are_named(run: Run, way: str) -> None:
    begun = run.events("hang")[2 * list(PHASES).index(way)]
    assert begun["iteration"] == PLAN[way] - 1
    functions = {"elsewhere": "until_there", "loader": "until_there", "locked": "locked"}
    assert "s (usually one in " in begun["text"]
    assert f": the others wait for rank 1 ({os.uname().nodename}, pid " in begun["text"]
    late, *others = begun["text"].partition("the others wait for ")[2].split("; ")
    assert f"s in {PHASES[way]}, at tests/processes/hanging.py:" in late
    assert late.endswith(f" in {functions[way]}")
    assert any(each.startswith("rank 0 (") and "in exposed_grad_comm" in each for each in others)
    assert any("gloo:all_reduce" in each and "DATA_PARALLEL_GROUP" in each for each in others)
    assert any("thread holder at tests/processes/hanging.py:" in each for each in others) == (way == "locked")


def test_each_hang_is_told_once_everywhere_and_so_is_its_end(run: Run) -> None:
    told = [each["text"] for each in run.events("hang")]
    assert len(told) == 2 * (len(PHASES) + 1)
    assert all(text.startswith("no step for ") for text in told[::2])
    assert all(text.startswith("the hang is over: step ") for text in told[1::2])
    output, log = (
        (run.directory / "output").read_text(),
        (run.directory / "perf" / "perf_realtime.log").read_text(),
    )
    for text in told:
        assert output.count(f"flagscale_perf: {text}") == log.count(text) == 1
    lines = (run.directory / "perf" / "findings.jsonl").read_text().splitlines()
    found = [each for each in map(json.loads, lines) if each["finding"] == "hang"]
    assert [each["text"] for each in found] == told
    assert [each["state"] for each in found] == ["begins", "ends"] * (len(PHASES) + 1)


def test_a_report_meanwhile_says_what_it_waits_for(run: Run) -> None:
    report = " ".join(run.reports["elsewhere"].split())
    place = re.search(
        r"The job hangs after iteration 5: it waits for rank 1, at (\S+) in until_there", report
    )
    assert place and "processes/hanging.py:" in place.group(1)
    assert "Unaccounted time" not in report and "the file has nothing of them" not in report


def test_a_process_that_is_stopped_is_named_with_its_state(run: Run) -> None:
    begun = run.events("hang")[2 * len(PHASES)]["text"]
    assert f"the others wait for rank 1 ({os.uname().nodename}, pid {run.pids[1]}): does not answer" in begun
    assert "(stopped" in begun


def test_stacks_shows_them_at_once_also_of_a_run_that_saves(run: Run) -> None:
    locked, saving = run.stacks["locked"], run.stacks["saving"]
    assert f"rank 1 ({os.uname().nodename}, pid {run.pids[1]}): iteration 14, forward, for " in locked
    assert "hanging.py:" in locked and "  thread holder\n" in locked
    assert "torch/distributed/distributed_c10d.py:" in locked
    assert "rank" in saving


def test_a_long_evaluation_is_no_hang(tmp_path: Path) -> None:
    run = Run(tmp_path)
    script = [fs.root() / "third_party" / "Megatron-LM" / "pretrain_gpt.py", *fs.SMALL, "--train-iters", "16"]
    evaluation = ["--eval-iters", "1", "--eval-interval", "8"]
    words = fs.launched(hanging.__file__, *script, *evaluation, *MONITOR)
    process = fs.start(
        [*INTO_FILE, *fs.workers(1, *words)], tmp_path, HANG_PLAN="evaluating@1", **{LEAST_VARIABLE: "0.5"}
    )
    run.wait(lambda: run_file(run) and run.iteration() == 7, "the evaluation")
    for _ in range(3):
        asked = subprocess.run(STACKS, cwd=tmp_path, capture_output=True, text=True, timeout=fs.DEADLINE_S)
        assert "in evaluation, at tests/processes/hanging.py:" in asked.stdout
    run.go("evaluating")
    finished = fs.finish(process)
    assert finished.returncode == 0, (tmp_path / "output").read_text()[-3000:]
    assert run.events("hang") == []


def test_a_dead_peer_behind_a_pulled_cable(tmp_path: Path) -> None:
    """Nobody closes a connection: the other machine's ranks wait until gloo gives up, half an hour later."""
    run = Run(tmp_path)
    with two_machines(tmp_path) as machines:
        script = [padded_stages.__file__, fs.train_gpt(), *fs.SMALL, "--train-iters", "100000", *MONITOR]
        pads = {"PADDED_FORWARD_S": "0.02", "PADDED_BACKWARD_S": "0.03", "GLOO_SOCKET_IFNAME": CABLE}
        port, nodes = fs.free_port(), []
        for number, machine in enumerate(machines):
            address = [f"--master_addr={machines[0].address}", f"--master_port={port}"]
            words = fs.torchrun(1, "--nnodes=2", f"--node_rank={number}", *address, *fs.launched(*script))
            server = warm.start_server(1, within=machine.command())
            own = torchrun_environment(tmp_path, fs.environment()["PYTHONPATH"], server)
            env = {**pads, **own, LEAST_VARIABLE: "2"}
            nodes.append(fs.start([*INTO_FILE, *machine.command(*words)], tmp_path, **env))
        run.wait(lambda: run_file(run) and run.iteration() > 8, "steps")
        machines[0].run("sh", "-c", f"cd {tmp_path} && exec {' '.join(STACKS)}")
        machines[1].unplug()
        machines[1].die()
        run.wait(lambda: run.events("hang"), "the hang")
        machines[0].die()
        for node in nodes:
            node.communicate()
    answered = {(each["rank"], each["hostname"]) for each in fs.records(tmp_path / "perf", "doing")}
    assert answered == {(0, "node0"), (1, "node1")}  # to `stacks`
    told = run.events("hang")[0]["text"]
    assert ": the others wait for rank 1: nothing comes from there; rank 0 (node0, pid " in told
