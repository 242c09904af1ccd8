"""Real FlagScale 0.8.0 profiled: the same losses to the bit, rows for every layer of each rank, books that
close.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.processes import flagscale as fs

pytestmark = pytest.mark.host

ITERATIONS, LAYERS = 8, 4
TENSOR = ["--tensor-model-parallel-size", "2"]  # torch's LayerNorm, the CPU's, refuses sequence parallelism
RECOMPUTED = [
    *("--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1")
]
EVERY = set(range(LAYERS))
SHAPES: dict[str, tuple[int, list[str], list[set[int]], set[str]]] = {
    # ranks, arguments, layers of each rank, parts of the step
    "1 rank": (1, [], [EVERY], {"forward", "backward"}),
    "TP2": (2, TENSOR, [EVERY, EVERY], {"forward", "backward"}),
    "PP2, recompute": (
        2,
        ["--pipeline-model-parallel-size", "2", *RECOMPUTED],
        [{0, 1}, {2, 3}],
        {"forward", "backward", "recompute"},
    ),
}
PARTS = ("operators_ns", "outside_ns", "host_ns", "engine_ns", "communication_ns", "residual_ns")


def train(directory: Path, ranks: int, *words: str) -> fs.Finished:
    script = [
        fs.train_gpt(), *fs.TINY, "--num-layers", LAYERS, "--train-iters", ITERATIONS,
        "--tensorboard-dir", directory / "tb",
    ]  # fmt: skip
    directory.mkdir()
    return fs.run(fs.workers(ranks, *fs.launched(*map(str, script), *words)), directory)


def sessions(directory: Path) -> dict[str, list[dict[str, Any]]]:
    """Records of each instrument."""
    found = {}
    for path in directory.glob("perf_records_*.jsonl"):
        header, *records = map(json.loads, path.read_text().splitlines())
        found[header["instrument"]] = records
    return found


class Profile:
    """What a rank's profile says.

    Attributes:
        rows: layers, and parts of the step in which something ran in them.
    """

    def __init__(self) -> None:
        self.rows: set[tuple[int, str]] = set()
        self._names = {0: ""}
        self._self_ns = 0
        self._steps: list[dict[str, Any]] = []
        self._windows: list[tuple[int, int, int]] = []

    def add(self, record: dict[str, Any]) -> None:
        """The next record of the rank."""
        kind = record["kind"]
        if kind == "name":
            self._names[record["number"]] = record["text"]
        elif kind == "profile_row":
            self._self_ns += record["self_ns"]
            path = self._names[record["module"]].split(".")
            if path[:2] == ["decoder", "layers"] and len(path) > 2:
                self.rows.add((int(path[2]), self._names[record["phase"]]))
        elif kind == "profile_step":
            self._steps.append(record)
        elif kind == "profile_window":
            self._windows.append((record["steps"], record["clean_steps"], record["reason"]))

    def check(self) -> None:
        """Two steps profiled, two clean; parts and residual make each, and the rows make them all."""
        assert self._windows == [(2, 2, 0)]
        steps = [(step["iteration"], step["is_profiled"]) for step in self._steps]
        assert steps == [(3, 1), (4, 0), (5, 1), (6, 0)]
        assert {(step["samples"], step["tokens"]) for step in self._steps} == {(4, 4 * 64)}
        profiled = [step for step in self._steps if step["is_profiled"]]
        for step in profiled:
            assert sum(step[part] for part in PARTS) == step["total_ns"]
        # a busy machine may take the processor away between the two clocks: not from every step
        assert min(abs(step["residual_ns"]) / step["total_ns"] for step in profiled) < 0.01
        residual_ns = sum(step["residual_ns"] for step in profiled)
        assert self._self_ns + residual_ns == sum(step["total_ns"] for step in profiled)


def profiles(records: list[dict[str, Any]]) -> dict[int, Profile]:
    """Of each rank."""
    found: dict[int, Profile] = defaultdict(Profile)
    ranks = {record["process"]: record["rank"] for record in records if record["kind"] == "profile_rank"}
    for record in records:
        if record.get("process") in ranks:
            found[ranks[record["process"]]].add(record)
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_each_rank_has_rows_for_its_layers_and_the_host_trains_the_same(shape: str, tmp_path: Path) -> None:
    ranks, arguments, layers, parts = SHAPES[shape]
    off = train(tmp_path / "off", ranks, *arguments)
    monitor = ["--enable-perf-monitor", "--perf-log-dir", "perf", "--perf-profile-steps", "3-4"]
    on = train(tmp_path / "on", ranks, *arguments, *monitor)
    assert (off.returncode, on.returncode) == (0, 0), off.output[-3000:] + on.output[-3000:]
    assert fs.host_losses(tmp_path / "on" / "tb") == fs.host_losses(tmp_path / "off" / "tb")
    assert on.lines == off.lines
    assert (
        "flagscale_perf: 2 iterations from 3 on are profiled, each beside 1 clean; they take longer"
        in on.output
    )

    found = sessions(tmp_path / "on" / "perf")
    assert set(found) == {"training", "profile"}
    trained = [record["iteration"] for record in found["training"] if record["kind"] == "step"]
    assert trained == list(range(1, ITERATIONS + 1))
    profiled = profiles(found["profile"])
    assert sorted(profiled) == list(range(ranks))
    for rank, profile in profiled.items():
        assert profile.rows == {(layer, part) for layer in layers[rank] for part in parts}
        profile.check()


def test_ranks_that_are_not_asked_for_are_not_profiled(tmp_path: Path) -> None:
    words = ["--enable-perf-monitor", "--perf-log-dir", "perf", "--perf-profile-steps", "3"]
    done = train(tmp_path / "on", 2, *words, "--perf-profile-ranks", "1")
    assert done.returncode == 0, done.output[-3000:]
    records = sessions(tmp_path / "on" / "perf")["profile"]
    assert [record["rank"] for record in records if record["kind"] == "profile_rank"] == [1]


def test_two_profilers_are_refused_before_the_training(tmp_path: Path) -> None:
    words = ["--enable-perf-monitor", "--perf-profile-steps", "3", "--profile"]
    done = train(tmp_path / "on", 1, *words)
    assert done.returncode != 0
    assert (
        "flagscale_perf: error: --perf-profile-steps 3-3 and the host's own --profile: two profilers take"
        " each other's events; leave one of them out"
    ) in done.output
    assert done.logged == []
