"""examples/rl_job as `make demo-job` runs it, with all faults planted and with none: what was recorded of it
is one job, each record lies where the job's own book says, and the report names the faults in the order of
what they cost.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from pathlib import Path
from typing import Any

import psutil
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from flagscale_perf.analysis.job import Job
from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.whole import Whole
from flagscale_perf.cli.instruments import load_records
from flagscale_perf.profile.records import StepRecord as ProfiledStep
from flagscale_perf.rpc.records import CallRecord, ServedRecord
from flagscale_perf.trace.records import CallRecord as QueueCall
from flagscale_perf.trace.records import OperationRecord
from flagscale_perf.training.records import StepRecord
from tests.members import wait_for
from tests.trace import warm_workers

REPO = Path(__file__).parents[2]
STEPS, PROMPTS, RANKS = 22, 8, 2  # of fewer steps no speed is judged
# Iterations 3, 5 and 7 are profiled, each beside a clean one, and 9 with shapes.
WORDS = ["--steps", str(STEPS), "--prompts", str(PROMPTS), "--profile-steps", "3-5"]
FAULTS = ["--slow-reward", "100", "--slow-unit", "1", "--slow-module", "2"]
# By what names each fault, the one that costs most first.
NAMES = {
    "reward": {("rpc", "server")},
    "unit": {("trace", "straggling_unit")},
    "module": {("profile", "slow_layer"), ("profile", "python_in_module")},
}


@dataclass(frozen=True)
class Made:
    """What a run has left.

    Attributes:
        said: by the script.
    """

    directory: Path
    said: str

    @cached_property
    def book(self) -> list[dict[str, int]]:
        """The job's own: of each step when it began, and its parts."""
        return [json.loads(line) for line in (self.directory / "steps.jsonl").read_text().splitlines()]

    @cached_property
    def medians(self) -> dict[str, Any]:
        return json.loads((self.directory / "book.json").read_text())

    @cached_property
    def whole(self) -> Whole:
        load_records()
        return Job(self.directory).whole()

    @cached_property
    def report(self) -> dict[str, Any]:
        """As JSON."""
        words = [sys.executable, "-m", "flagscale_perf", "report", self.directory, "--format", "json"]
        return json.loads(subprocess.run(words, cwd=REPO, capture_output=True, check=True).stdout)

    def in_directory(self, name: str) -> Session:
        """The session that was recorded there."""
        (found,) = [one for one in self.whole.sessions if one.path.parent == self.directory / name]
        return found

    def step_at(self, at_ns: int) -> int:
        """That the job was in, by its own clock; 0 for none."""
        within = [row["step"] for row in self.book if 0 <= at_ns - row["begin_ns"] < row["step_ns"]]
        return within[0] if within else 0


def run(directory: Path, *words: str) -> Made:
    """The demo, its report, page and trace included."""
    python = os.path.relpath(sys.executable, REPO)
    done = subprocess.run(
        [REPO / "scripts/demo_job", python, directory, *WORDS, *words],
        env=os.environ | warm_workers.environment(directory.parent),
        cwd=REPO, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return Made(directory, done.stdout)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return run(tmp_path_factory.mktemp("planted") / "job", *FAULTS)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return run(tmp_path_factory.mktemp("sound") / "job")


def test_all_sessions_are_of_one_job(planted: Made) -> None:
    whole = planted.whole
    assert whole.lead.instrument == "training"
    assert Counter(one.session.instrument for one in whole.members) == {"rpc": 2, "trace": 1, "profile": 1}
    assert all(one.is_on_clock for one in whole.members)
    assert list(whole.apart) == []


def of(session: Session, kind: type) -> list[Any]:
    return [record for record in session.again() if type(record) is kind]


def test_each_rank_has_trained_each_step_when_the_book_says(planted: Made) -> None:
    steps = of(planted.whole.lead, StepRecord)
    assert [step.iteration for step in steps] == [*range(1, STEPS + 1)]
    assert [planted.step_at(step.start_ns) for step in steps] == [*range(1, STEPS + 1)]
    profiled = of(planted.whole.of("profile")[0], ProfiledStep)
    of_ranks = Counter(step.iteration for step in profiled if step.is_profiled)
    assert {3: RANKS, 5: RANKS, 7: RANKS}.items() <= of_ranks.items()
    assert all(planted.step_at(step.start_ns) == step.iteration for step in profiled)


def test_each_call_is_in_the_step_that_made_it_on_both_sides(planted: Made) -> None:
    calls, served = (
        of(planted.in_directory("calls"), CallRecord),
        of(planted.in_directory("served"), ServedRecord),
    )
    made = Counter((planted.step_at(call.start_ns), call.method) for call in calls)
    assert made == {
        (step, method): count
        for step in range(1, STEPS + 1)
        for method, count in (("Health", 1), ("Score", PROMPTS))
    }
    assert len(served) == len(calls)
    for call, at_server in zip(calls, served, strict=True):
        assert call.start_ns <= at_server.start_ns
        assert at_server.start_ns + at_server.total_ns - at_server.send_ns <= call.start_ns + call.total_ns


def test_each_operation_of_the_queue_is_in_its_step(planted: Made) -> None:
    queue = planted.in_directory("queue")
    for kind in (OperationRecord, QueueCall):
        found = of(queue, kind)
        assert found
        assert [one.step for one in found] == [planted.step_at(one.start_ns) for one in found]


def flat(findings: list[Mapping[str, Any]], below: str = "") -> Iterator[tuple[str, str]]:
    """Instrument and name of findings and of what explains them, in the order in which they are shown."""
    for finding in findings:
        instrument = (finding.get("instrument") or below).split()[0]
        yield instrument, finding["name"]
        yield from flat([link["finding"] for link in finding.get("links", [])], instrument)


def named(made: Made) -> list[str]:
    """The faults that the report names, in its order."""
    found = list(flat(made.report["job"]["findings"]))
    first = {
        fault: min(found.index(one) for one in names if one in found)
        for fault, names in NAMES.items()
        if names & {*found}
    }
    return sorted(first, key=first.__getitem__)


def test_the_faults_are_named_in_the_order_of_what_they_cost(planted: Made, sound: Made) -> None:
    own, parts = planted.medians["planted"], planted.medians["median_of_a_step"]
    unit_ms = parts["queue_ms"] - sound.medians["median_of_a_step"]["queue_ms"]
    costs = {"reward": own["slow_reward_ms"], "unit": unit_ms, "module": own["slow_module_ms"]}
    found = named(planted)
    assert {*found} == {*costs} and min(costs.values()) > 0
    for dearer, cheaper in permutations(costs, 2):  # by the job's own clocks
        if costs[dearer] > 1.25 * costs[cheaper]:  # closer ones a busy machine can turn round
            assert found.index(dearer) < found.index(cheaper), costs


def test_none_is_named_where_none_is_planted(sound: Made) -> None:
    assert named(sound) == []


def test_the_head_says_both_rates(planted: Made) -> None:
    """Against the job's own: 32 samples a step."""
    rl = planted.report["job"]["reports"]["trace"]["rl"]
    usual = 32 / (planted.medians["median_of_a_step"]["step_ms"] / 1000)
    for side, processes in (("generator", 2), ("trainer", RANKS)):
        assert rl[side]["processes"] == processes
        assert rl[side]["samples_per_s"] == pytest.approx(usual, rel=0.5)  # a mean, of what loads the machine
    assert (rl["age_steps"]["mean"], rl["age_steps"]["max"]) == (0, 0)


def test_actor_and_generators_have_the_same_weights_and_learn(sound: Made) -> None:
    """While they have, each response is as likely for both, and GRPO's loss is 0: by its advantages' mean."""
    log = (sound.directory / "training.log").read_text()
    rows = re.findall(r"^step (\d+): reward ([\d.]+), loss ([-+.\d]+)", log, re.MULTILINE)
    assert float(rows[0][2]) == 0
    assert float(rows[-1][1]) > float(rows[0][1]) + 0.1


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    """As a terminal does it: to all processes of the group."""
    words = [sys.executable, REPO / "examples/rl_job/train.py", tmp_path / "job", *FAULTS, "--steps", "1000"]
    with subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        text=True, env=os.environ | {"PYTHONPATH": str(REPO)},
    ) as job:  # fmt: skip
        assert job.stdout is not None
        said = "".join(itertools.takewhile(lambda line: not line.startswith("step 2:"), job.stdout))
        assert job.poll() is None, said[-3000:]
        started = psutil.Process(job.pid).children(recursive=True)
        (temporary,) = set(
            re.findall("/tmp/job-[^/ ]+", " ".join(" ".join(one.cmdline()) for one in started))
        )
        os.killpg(job.pid, signal.SIGINT)
        said = job.stdout.read()
    assert job.returncode == 130, said[-3000:]
    wait_for(lambda: not any(one.is_running() for one in started))
    assert not Path(temporary).exists()
    assert "Traceback" not in said


def test_one_command_leaves_report_page_and_trace(planted: Made) -> None:
    assert "Findings" in planted.said
    assert "<html" in (planted.directory / "job.html").read_text()
    trace = Trace.FromString((planted.directory / "job.pftrace").read_bytes())
    assert any(packet.HasField("track_event") for packet in trace.packet)
