"""A command that is told of a slow rank of the real FlagScale, while that trains; and what that logs of
losses.
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.training.analysis.fold import read_report
from tests.processes import flagscale as fs
from tests.processes.test_flagscale_findings import MONITOR, PADS, SLOWED_PARTS, padded_stages

pytestmark = pytest.mark.host

EXCESS_S, ITERATIONS = 0.12, 28


def train(directory: Path, *more: object) -> fs.Finished:
    """Two ranks; the second one works longer in its forward pass."""
    plants = [SLOWED_PARTS, f"forward:{EXCESS_S}:calls:1", padded_stages.__file__]
    words = [*plants, fs.train_gpt(), *fs.SMALL, "--vocab-size", 4200, "--train-iters", ITERATIONS, *more]
    finished = fs.run(fs.workers(2, *fs.launched(*map(str, words))), directory, **PADS)
    assert finished.returncode == 0, finished.output[-3000:]
    return finished


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, fs.Finished]:
    """With a command that fails, each time."""
    directory = tmp_path_factory.mktemp("told")
    tell = directory / "tell.sh"
    tell.write_text(f"#!/bin/sh\ncat >> {directory}/told\necho nobody is there >&2\nexit 3\n")
    tell.chmod(0o755)
    return directory, train(directory, *MONITOR, "--perf-log-interval", 5, "--perf-on-finding", tell)


def test_its_beginning_and_its_end_are_told(run: tuple[Path, fs.Finished]) -> None:
    directory, _ = run
    told = [json.loads(line) for line in (directory / "told").read_text().splitlines()]
    late = [each for each in told if each["finding"] == "straggler"]
    assert [each["state"] for each in (late[0], late[-1])] == ["begins", "ends"]
    assert (late[0]["ranks"], late[0]["phase"], late[0]["unit"]) == ([1], "forward", "ms")
    assert 0.5 * EXCESS_S <= late[0]["severity"] / 1000 <= 2 * EXCESS_S
    assert late[0]["iteration"] < late[-1]["iteration"] <= ITERATIONS


def test_a_command_that_fails_is_an_event_and_costs_the_training_nothing(
    run: tuple[Path, fs.Finished], tmp_path: Path
) -> None:
    directory, with_it = run
    events = [each["text"] for each in fs.records(directory / "perf", "event") if each["name"] == "failure"]
    assert f"--perf-on-finding {directory / 'tell.sh'}: ended with code 3: nobody is there" in events
    assert with_it.lines == train(tmp_path).lines


def test_loss_norm_and_rate_are_those_that_the_host_prints(run: tuple[Path, fs.Finished]) -> None:
    directory, finished = run
    printed = [
        tuple(
            float(re.search(rf"{name}: (\S+)", line)[1]) for name in ("lm loss", "grad norm", "learning rate")
        )
        for line in finished.lines
    ]
    curves = fs.records(directory / "perf", "curve")
    assert [each["iteration"] for each in curves] == list(range(1, ITERATIONS + 1))
    assert [(each["loss"], each["grad_norm"], each["learning_rate"]) for each in curves] == printed
    last = fs.records(directory / "perf", "interval")[-2]
    means = [statistics.fmean(figures) for figures in zip(*printed[20:25], strict=True)]
    assert (last["iteration"], last["loss"], last["grad_norm"]) == (25, *map(pytest.approx, means[:2]))
    assert last["learning_rate"] == printed[24][2]
    (path,) = (directory / "perf").glob("perf_records_*.jsonl")
    assert read_report(open_session(path)).trend.curves["loss"][-1] == (
        ITERATIONS,
        pytest.approx(means_of(printed)),
    )


def means_of(printed: list[tuple[float, ...]]) -> float:
    """The loss of the last interval."""
    return statistics.fmean(loss for loss, *_ in printed[25:])
