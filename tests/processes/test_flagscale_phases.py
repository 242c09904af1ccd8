"""Phases of real runs, each between what the processes say that it took at least and at most.

However busy the machine: a phase takes no less than what was slept in it, a wait lasts at least until the
message is sent, and both no longer than the call that they are in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.processes import flagscale as fs
from tests.processes import padded_stages
from tests.processes.planted_runs import PHASES
from tests.processes.slept import Said, said, slept

pytestmark = pytest.mark.host

SLOWED_PARTS = Path(__file__).with_name("slowed_parts.py")
MONITOR = ("--enable-perf-monitor", "--perf-breakdown", "--perf-max-overhead", 100, "--perf-log-dir", "perf")
STAGES, MICROBATCHES = 2, 4
EXCESS_S, SLEEP_S = 0.04, 0.05
PADS = {"PADDED_FORWARD_S": "0.01", "PADDED_BACKWARD_S": "0.02"}
EACH = 4  # steps of a plant, which are an interval
SLOW_LAST = 1  # of the intervals
PLANTS = f"backward:{EXCESS_S}:calls 5-8:1,backward:{EXCESS_S}:calls 9-12:0"


def train(directory: Path, ranks: int, plants: str, *more: object) -> None:
    words = [SLOWED_PARTS, plants, padded_stages.__file__, fs.train_gpt(), *fs.SMALL, *more, *MONITOR]
    finished = fs.run(fs.workers(ranks, *fs.launched(*map(str, words))), directory, **PADS)
    assert finished.returncode == 0, finished.output[-3000:]


def test_what_is_slept_in_a_phase_is_in_the_time_of_that_phase(tmp_path: Path) -> None:
    """Each phase is slept in for 50 ms in two steps of its own, and all phases are a step's time: what one
    has, no other has.
    """
    steps = {phase: (2 * place + 2, 2 * place + 3) for place, phase in enumerate(PHASES)}
    plants = [f"{phase}:{SLEEP_S}:steps {first}-{last}" for phase, (first, last) in steps.items()]
    train(tmp_path, 1, ",".join(plants), "--train-iters", 2 * len(PHASES) + 2)
    told, rows = said(tmp_path), {row["iteration"]: row for row in fs.records(tmp_path / "perf", "phases")}
    whole_ns = {step["iteration"]: step["iteration_ns"] for step in fs.records(tmp_path / "perf")}
    padding = {"forward", "backward"}
    for phase, both in steps.items():
        for step in both:
            planted = [each for each in told if (each.step, each.what) == (step, phase)]
            assert len(planted) == (1 if phase not in padding else 1 + 2), (phase, step)  # of 2 micro-batches
            times = {name: ns for name, ns in rows[step].items() if name in {f"{each}_ns" for each in PHASES}}
            assert times[f"{phase}_ns"] >= slept(planted, lambda each: True) >= SLEEP_S * 1e9, (phase, step)
            assert sum(ns or 0 for ns in times.values()) <= whole_ns[step]


@dataclass(frozen=True)
class Bounds:
    """Of what rank 0 measures in a step, by what both ranks say of it.

    Attributes:
        wait: for messages of the last stage: from when rank 0 came to one until it was sent; and for as long
            as it was busy with getting it.
        computing: what it slept in its passes, and all their time.
    """

    wait: tuple[int, int]
    computing: tuple[int, int]

    @property
    def bubble(self) -> tuple[int, int]:
        """One forward, one backward: all other stages' passes of one micro-batch, and no more than waited."""
        least, most = (
            min(wait, computing // MICROBATCHES)
            for wait, computing in zip(self.wait, self.computing, strict=True)
        )
        return least, most

    @property
    def imbalance(self) -> tuple[int, int]:
        """The rest of the waiting."""
        least, most = (
            max(0, wait - computing // MICROBATCHES)
            for wait, computing in zip(self.wait, reversed(self.computing), strict=True)
        )
        return least, most

    @classmethod
    def of(cls, told: Sequence[Said], step: int) -> Bounds:
        """Of that step."""
        first, last = ([each for each in told if (each.rank, each.step) == (rank, step)] for rank in (0, 1))
        got = [each.begin_ns for each in first if each.what == "gets"]
        sent = [each.begin_ns for each in last if each.what == "sends"]
        assert len(got) == len(sent) == MICROBATCHES
        passes = sum(each.end_ns - each.begin_ns for each in first if each.what == "pass")
        return cls(
            (
                sum(max(0, there - here) for here, there in zip(got, sent, strict=True)),
                sum(each.end_ns - each.begin_ns for each in first if each.what == "waits"),
            ),
            (sum(each.slept_ns for each in first), passes),
        )


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two even stages; then the last, then the first one is slow."""
    directory = tmp_path_factory.mktemp("pipeline")
    batch = ["--global-batch-size", 2 * MICROBATCHES, "--train-iters", 3 * EACH, "--perf-log-interval", EACH]
    parallel = [
        "--pipeline-model-parallel-size",
        STAGES,
        "--vocab-size",
        4200,
    ]  # the loss is the last stage's
    train(directory, STAGES, PLANTS, *batch, *parallel)
    return directory


def intervals(pipeline: Path) -> Iterator[tuple[dict[str, Any], list[Bounds]]]:
    """Each with the bounds of its steps."""
    told = said(pipeline)
    for place, interval in enumerate(fs.records(pipeline / "perf", "interval")):
        first, last = EACH * place + 1, EACH * (place + 1)
        assert interval["iteration"] == last
        yield interval, [Bounds.of(told, step) for step in range(max(2, first), last + 1)]


def total(bounds: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(least for least, _ in bounds), sum(most for _, most in bounds)


def test_waiting_for_other_stages_is_what_they_say_and_is_bubble_and_imbalance(pipeline: Path) -> None:
    found = list(intervals(pipeline))
    assert [len(bounds) for _, bounds in found] == [EACH - 1, EACH, EACH]
    for interval, bounds in found:
        phases_ns = interval["phases_ns"]
        assert interval["bubble_ns"] + interval["imbalance_ns"] == phases_ns["pipeline_recv_wait"]
        for measured_ns, (least, most) in (
            (phases_ns["pipeline_recv_wait"], total([each.wait for each in bounds])),
            (phases_ns["forward"] + phases_ns["backward"], total([each.computing for each in bounds])),
            (interval["bubble_ns"], total([each.bubble for each in bounds])),
            (interval["imbalance_ns"], total([each.imbalance for each in bounds])),
        ):
            assert least <= measured_ns <= most


def test_a_slow_last_stage_is_imbalance(pipeline: Path) -> None:
    """Its excess is waited for behind each micro-batch, and the schedule's share of that is its own."""
    interval, bounds = list(intervals(pipeline))[SLOW_LAST]
    assert interval["imbalance_ns"] >= total([each.imbalance for each in bounds])[0] > 0


def test_phases_are_summed_up(pipeline: Path) -> None:
    summary = fs.summary(pipeline / "perf")
    phases, bubble = summary["phases"], summary["bubble"]
    found = [interval for interval, _ in intervals(pipeline)]
    assert phases["steps"] == 3 * EACH - 1
    assert sum(value for value in phases["share"].values() if value is not None) == pytest.approx(1)
    for name in ("bubble", "imbalance"):
        assert bubble[f"{name}_s"] == pytest.approx(sum(each[f"{name}_ns"] for each in found) / 1e9)
    whole_s = sum(phases["total_s"][name] for name in ("data_loading", "forward", "backward"))
    whole_s += bubble["bubble_s"] + bubble["imbalance_s"]
    assert bubble["bubble_share_of_pipeline"] == pytest.approx(bubble["bubble_s"] / whole_s)
    (log,) = (pipeline / "perf").glob("perf_metrics_*.log")
    assert "Pipe%" in log.read_text()
