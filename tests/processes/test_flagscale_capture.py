"""Raw marks of every rank of a real run, by themselves and by the command, and what that changes of the run:
nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.store.decoder import decode
from flagscale_perf.training.analysis.fold import MS_PER_S, read_report
from flagscale_perf.training.capture import unpacked
from flagscale_perf.training.marks import own_times
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.records import CapturedRecord
from flagscale_perf.training.settled import MIN_STEPS
from flagscale_perf.training.unasked import STEPS
from tests.processes import flagscale as fs
from tests.processes import padded_stages
from tests.processes.shared_runs import ITERATIONS, SHAPES, with_monitor

pytestmark = pytest.mark.host

RANKS, ASKED_STEPS = 2, 6
MICROBATCHES = 2  # of a step of `fs.SMALL` on one replica
PIPELINE = ["--pipeline-model-parallel-size", "2", "--vocab-size", "4200", "--train-iters", "5000"]
MONITOR = [
    "--enable-perf-monitor",
    "--perf-breakdown",
    "--perf-max-overhead",
    "100",
    "--perf-log-dir",
    "perf",
]
PADS = {"PADDED_FORWARD_S": "0.015", "PADDED_BACKWARD_S": "0.03"}  # a window begins some 3 s ahead
ASK = [sys.executable, "-m", "flagscale_perf", "capture", "perf", "--steps", str(ASKED_STEPS)]


@dataclass(frozen=True)
class Captured:
    """A run of which two windows were captured: by itself when it had settled, and by the command.

    Attributes:
        directory: in which it ran.
        finished: what it printed.
        answer, late: of the command, while it ran and afterwards.
        steps: what was captured, in the order of the run file.
    """

    directory: Path
    finished: fs.Finished
    answer: subprocess.CompletedProcess[str]
    late: subprocess.CompletedProcess[str]
    steps: list[CapturedRecord]

    def window(self, number: int) -> tuple[dict, list[CapturedRecord]]:
        """The record of that window, and the steps in it."""
        window = fs.records(self.directory / "perf", "capture")[number]
        first, last = window["first_iteration"], window["iteration"]
        return window, [step for step in self.steps if first <= step.iteration <= last]


def command(*more: str) -> list[str]:
    script = [padded_stages.__file__, fs.train_gpt(), *fs.SMALL, *PIPELINE]
    return fs.workers(RANKS, *fs.launched(*script, *more))


def ask(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(ASK, cwd=directory, capture_output=True, text=True, timeout=fs.DEADLINE_S)


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """However long that takes: it ends once both windows are in the run file."""
    directory = tmp_path_factory.mktemp("captured")
    process = fs.start(command(*MONITOR, "--exit-signal-handler"), directory, **PADS)

    def has_come(steps: int) -> Callable[[], bool]:
        return lambda: len(fs.records(directory / "perf", "captured")) == RANKS * steps

    read = read_while(process, "", has_come(STEPS))
    answer = ask(directory)
    read = read_while(process, read, has_come(STEPS + ASKED_STEPS))
    process.terminate()
    finished = fs.finish(process, read)
    assert finished.returncode == 0, finished.output[-3000:]
    steps = [step_of(content) for content in fs.records(directory / "perf", "captured")]
    return Captured(directory, finished, answer, ask(directory), steps)


def read_while(process: subprocess.Popen[str], read: str, has_come: Callable[[], bool]) -> str:
    """What the run printed until then, in its first iteration at the earliest."""
    logged = fs.Finished(0, read).logged
    iteration = logged[-1].iteration if logged else 0
    while not has_come():
        iteration += 1
        read += fs.read_until(process, iteration)
    return read


def test_a_run_that_captures_trains_the_same(captured: Captured, tmp_path: Path) -> None:
    done = captured.finished.logged[-1].iteration
    plain = fs.run(
        command("--exit-interval", str(done)), tmp_path, PADDED_FORWARD_S="0", PADDED_BACKWARD_S="0"
    )
    assert plain.returncode == 0, plain.output[-3000:]
    ours, theirs = by_iteration(captured.finished), by_iteration(plain)
    both = ours.keys() & theirs.keys()
    assert len(both) >= done - 2  # ranks and writers share one pipe, and may write into each other's lines
    assert {i: ours[i] for i in both} == {i: theirs[i] for i in both}, "losses and norms, to the last digit"


def by_iteration(finished: fs.Finished) -> dict[str, str]:
    return {line.split("/")[0].split()[-1]: line for line in finished.lines}


def test_a_window_of_all_ranks_marks_with_the_host_s_timers(captured: Captured) -> None:
    window, steps = captured.window(0)
    first = window["first_iteration"]
    assert (window["iteration"], window["why"]) == (first + STEPS - 1, "settled")
    assert first > MIN_STEPS
    assert sorted((step.rank, step.iteration) for step in steps) == [
        (rank, first + place) for rank in range(RANKS) for place in range(STEPS)
    ]
    sent = [
        {window["timers"][code >> 1] for code in step.marks[::2]} & {"forward-send", "backward-send"}
        for step in steps
    ]
    assert {step.rank: names for step, names in zip(steps, sent, strict=True)} == {
        0: {"forward-send"},
        1: {"backward-send"},
    }
    # Rank 0's marks give the phases that are in the file anyway.
    phases = {row["iteration"]: row for row in fs.records(captured.directory / "perf", "phases")}
    for step in steps:
        if step.rank == 0:
            own = own_times(unpacked(step), step.start_ns, step.start_ns + step.train_step_ns)
            assert own[PHASES.index("forward")] == phases[step.iteration]["forward_ns"]


def test_a_live_run_is_asked_for_more_steps(captured: Captured) -> None:
    window, steps = captured.window(1)
    first, last = window["first_iteration"], window["iteration"]
    assert window.get("why", "") == ""
    (run_file,) = (captured.directory / "perf").glob("perf_records_*.jsonl")
    shown = (
        f"iterations {first} to {last} of every rank are captured into perf/{run_file.name} when they come\n"
    )
    answer = captured.answer
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, shown, "")
    assert sorted((step.rank, step.iteration) for step in steps) == [
        (rank, iteration) for rank in range(RANKS) for iteration in range(first, first + ASKED_STEPS)
    ]
    assert last == first + ASKED_STEPS - 1
    assert "not captured whole" not in captured.finished.output
    assert (captured.late.returncode, captured.late.stderr.split(" '")[0]) == (2, "no training writes")
    assert not list((captured.directory / "perf").glob("perf_capture_*"))


def test_what_if_tells_what_more_micro_batches_would_take(captured: Captured) -> None:
    """A forward and a backward pass of the slower stage for each, and what lies between two of them: here no
    more than a third.
    """
    asked = [sys.executable, "-m", "flagscale_perf", "what-if", "perf", "m=10", "--json"]
    where = {"cwd": captured.directory, "timeout": fs.DEADLINE_S}
    done = subprocess.run(asked, capture_output=True, text=True, **where)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["kind"], found["samples"], found["steps"]) == ("B", 5, ASKED_STEPS - 1)
    assert found["low_ns"] < found["predicted_ns"] < found["high_ns"]
    _, steps = captured.window(1)
    own = [own_times(unpacked(step), step.start_ns, step.start_ns + step.train_step_ns) for step in steps]
    passes_ns = [
        sum(times[PHASES.index(name)] for name in ("forward", "backward")) / MICROBATCHES for times in own
    ]
    more_ns = (found["predicted_ns"] - found["measured_ns"]) / 8
    assert 0.9 * min(passes_ns) < more_ns < 4 / 3 * max(passes_ns)
    assert json.loads((captured.directory / "perf/predictions.jsonl").read_text())["change"] == "m=10"


INTERLEAVED = [
    *("--pipeline-model-parallel-size", "2", "--num-layers", "4", "--vocab-size", "4200"),
    *("--num-layers-per-virtual-pipeline-stage", "1", "--global-batch-size", "8", "--train-iters", "20"),
    # with messages beside computing the losses of a rehearsal are no numbers; why is not known
    *("--no-check-for-nan-in-loss-and-grad", "--rerun-mode", "disabled"),
]


def test_an_interleaved_pipeline_is_replayed_in_its_own_order(tmp_path: Path) -> None:
    """With messages beside computing, as is Megatron's default. What the stages compute, and no more than a
    fifth besides, is on the path.
    """
    script = [padded_stages.__file__, fs.train_gpt(), *fs.SMALL, *INTERLEAVED]
    words = fs.launched(*script, *MONITOR, "--perf-capture-steps", "8")
    finished = fs.run(fs.workers(RANKS, *words), tmp_path, **PADS)
    assert finished.returncode == 0, finished.output[-3000:]
    (run_file,) = (tmp_path / "perf").glob("perf_records_*.jsonl")
    report = read_report(open_session(run_file))
    assert report.captured is not None and report.captured.not_replayed == ""
    path = report.critical_path
    assert path is not None and path.steps >= 6
    worked = sum(row.share for row in path.rows if row.rank is not None)
    assert worked > 0.8
    assert sum(row.share for row in path.rows) == pytest.approx(1)


def test_what_does_not_come_of_a_window_is_reported(tmp_path_factory) -> None:
    """It is as long as a hundred such trainings, and a busy machine may see its first steps."""
    run = with_monitor(tmp_path_factory, "MoE EP2")
    perf, ranks = run.directory / "perf", SHAPES["MoE EP2"].ranks
    (window,) = fs.records(perf, "capture")
    first, last = window["first_iteration"], window["iteration"]
    assert last - first == 999
    steps = sorted((each["rank"], each["iteration"]) for each in fs.records(perf, "captured"))
    came = range(first, ITERATIONS + 1)
    assert steps == [(rank, iteration) for rank in range(ranks) for iteration in came]
    (event,) = [each for each in fs.records(perf, "event") if each["name"] == "capture"]
    never = f"iterations {max(first, ITERATIONS + 1)} to {last}"
    assert event["text"] == (
        f"iterations {first} to {last} are not captured whole: {never} did not come, as the training"
        f" ended at {ITERATIONS}"
    )
    assert run.finished.output.count(f"flagscale_perf: {event['text']}\n") == 1


def step_of(content: dict) -> CapturedRecord:
    record = decode(json.dumps(content).encode())
    assert isinstance(record, CapturedRecord)
    return record


def test_the_critical_path_is_as_long_as_the_steps_and_has_the_sleeps_that_follow_one_another(
    captured: Captured,
) -> None:
    """Of the last window. With m micro-batches, m + 1 sleeps of each kind follow one another in 2 stages."""
    (run_file,) = (captured.directory / "perf").glob("perf_records_*.jsonl")
    path = read_report(open_session(run_file)).critical_path
    assert path is not None
    window, steps = captured.window(1)
    ends_ns = [
        max(step.start_ns + step.train_step_ns for step in steps if step.iteration == iteration)
        for iteration in range(window["first_iteration"], window["iteration"] + 1)
    ]
    assert path.steps == len(ends_ns) - 1
    assert path.step_ms * path.steps == pytest.approx((ends_ns[-1] - ends_ns[0]) / NS_PER_MS)
    worked_ms = sum(row.step_ms for row in path.rows if row.rank is not None)
    asleep_ms = (MICROBATCHES + 1) * MS_PER_S * sum(map(float, PADS.values()))
    assert asleep_ms <= worked_ms <= path.step_ms
