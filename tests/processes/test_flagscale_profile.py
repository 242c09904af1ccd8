"""Real FlagScale 0.8.0 and Megatron-LM profiled: the same losses to the bit, rows for every layer of each
rank, books that close.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import flagscale as fs
from tests.processes.profiled_shapes import SHAPES, Shape, check, sessions, train

pytestmark = pytest.mark.host

CHECKED = (
    "DP2, distributed optimizer",
    "TP2, SP",
    "PP2, VPP, recompute",
)  # the others: python -m tests.processes.profiled_shapes
QUICK = ("PP2, VPP, recompute",)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in CHECKED]
)
def test_each_rank_has_rows_for_its_layers_and_the_host_trains_the_same(name: str, tmp_path: Path) -> None:
    said = list(check(name, tmp_path))
    assert len(said) == 1 + SHAPES[name].ranks


def test_ranks_that_are_not_asked_for_are_not_profiled(tmp_path: Path) -> None:
    words = ["--enable-perf-monitor", "--perf-log-dir", "perf", "--perf-profile-steps", "3"]
    done = train(tmp_path / "on", Shape(), *words, "--perf-profile-ranks", "1")
    assert done.returncode == 0, done.output[-3000:]
    records = sessions(tmp_path / "on" / "perf")["profile"]
    assert [record["rank"] for record in records if record["kind"] == "profile_rank"] == [1]


def test_two_profilers_are_refused_before_the_training(tmp_path: Path) -> None:
    words = ["--enable-perf-monitor", "--perf-profile-steps", "3", "--profile"]
    done = train(tmp_path / "on", Shape(1), *words)
    assert done.returncode != 0
    assert (
        "flagscale_perf: error: --perf-profile-steps 3-3 and the host's own --profile: two profilers take"
        " each other's events; leave one of them out"
    ) in done.output
    assert done.logged == []


def test_steps_of_a_live_training_are_profiled_on_request(tmp_path: Path) -> None:
    """Without a restart; the profile's session is over long before the training."""
    words = [
        "--train-iters",
        "1000",
        "--enable-perf-monitor",
        "--perf-log-dir",
        "perf",
        "--exit-signal-handler",
    ]
    training = fs.workers(2, *fs.launched(fs.train_gpt(), *fs.SMALL, *words))
    process = fs.start(["sh", "-c", 'exec "$@" > output 2>&1', "sh", *training], tmp_path)
    perf = tmp_path / "perf"
    fs.wait_until(lambda: perf.is_dir() and len(fs.records(perf)) > 5, "steps")
    ask = [sys.executable, "-m", "flagscale_perf", "profile", "now", "perf", "--steps"]
    asked = subprocess.run([*ask, "2"], cwd=tmp_path, capture_output=True, text=True, timeout=fs.DEADLINE_S)
    again = subprocess.run([*ask, "2"], cwd=tmp_path, capture_output=True, text=True, timeout=fs.DEADLINE_S)
    assert (asked.returncode, again.returncode) == (0, 2), (asked, again)
    assert "is not profiled: another window is profiled, or will be" in again.stderr
    begun = re.match(r"2 iterations from (\d+) on are profiled, beside clean ones", asked.stdout)
    assert begun is not None, asked.stdout
    fs.wait_until(
        lambda: "end" in {each["kind"] for each in sessions(perf).get("profile", [])}, "the profile"
    )
    process.send_signal(signal.SIGTERM)
    assert fs.finish(process).returncode == 0, (tmp_path / "output").read_text()[-3000:]
    records = sessions(perf)["profile"]
    steps = [each for each in records if each["kind"] == "profile_step" and each["is_profiled"]]
    first = int(begun[1])
    assert sorted(each["iteration"] for each in steps) == [first, first, first + 2, first + 2]
    assert {each["rank"] for each in records if each["kind"] == "profile_rank"} == {0, 1}
    assert max(each["iteration"] for each in fs.records(perf)) > first + 4


def profiled(directory: Path) -> list[dict[str, Any]]:
    """The whole lines of a profile's run file so far."""
    found = []
    for path in directory.glob("perf_records_*.jsonl"):
        header, *rows = (
            json.loads(line) for line in path.read_text().splitlines(True) if line.endswith("\n")
        )
        found += rows if header["instrument"] == "profile" else []
    return found
