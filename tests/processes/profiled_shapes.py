"""Trainings of the real FlagScale and Megatron-LM, profiled in every way of sharing the work among two ranks,
and what is found of them.

python -m tests.processes.profiled_shapes [SHAPE ...]

trains in each shape twice, without and with profiling, checks that the losses are the same to the bit, that
each layer of each rank has rows in each part of the step, that the books close and that each collective is
there as often as the shape says, and prints it. One shape has delays planted on purpose behind its profiled
steps: its losses are the same, too. `make test` does so with some of them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flagscale_perf.profile.analysis.communication import label_of
from tests.processes import flagscale as fs

ITERATIONS, LAYERS, STEPS, MICROBATCHES = 8, 4, 2, 2  # STEPS profiled ones
MEGATRON = fs.root() / "third_party" / "Megatron-LM" / "pretrain_gpt.py"
EVERY = set(range(LAYERS))
BOTH = {"forward", "backward"}
TENSOR = ("--tensor-model-parallel-size", "2")
PIPELINE = ("--pipeline-model-parallel-size", "2")
FULL = ("--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1")
SELECTIVE = ("--recompute-granularity", "selective", "--recompute-modules", "core_attn")
OPTIMIZER = ("--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather")
EXPERTS = (
    *("--num-experts", "2", "--expert-model-parallel-size", "2", "--disable-bias-linear"),
    *("--moe-token-dispatcher-type", "alltoall"),
)
MONITOR = ("--enable-perf-monitor", "--perf-log-dir", "perf", "--perf-profile-steps", "3-4")
PARTS = ("operators_ns", "outside_ns", "host_ns", "engine_ns", "communication_ns", "residual_ns")


@dataclass(frozen=True)
class Shape:
    """A way to train.

    Attributes:
        ranks: processes.
        arguments: behind those of every shape.
        layers: of each rank.
        parts: of the step, in which each of them has rows.
        collectives: of one rank and one step; by what the group is for, and the operation.
        script: that trains.
    """

    ranks: int = 2
    arguments: tuple[str, ...] = ()
    layers: tuple[set[int], ...] = (EVERY, EVERY)
    parts: set[str] = field(default_factory=lambda: set(BOTH))
    collectives: Mapping[tuple[str, str], int] = field(default_factory=dict)
    script: Path = field(default_factory=fs.train_gpt)


# Under sequence parallelism a layer gathers twice in its forward pass and four times in its backward pass and
# scatters twice in each; the output layer gathers once in each and scatters once, the embedding gathers once.
SHAPES = {
    "1 rank": Shape(1, (), (EVERY,)),
    # one bucket of gradients, and of parameters
    "DP2, distributed optimizer": Shape(
        2, OPTIMIZER, collectives={("DP", "all_gather"): 1, ("DP", "reduce_scatter"): 1}
    ),
    "TP2": Shape(2, TENSOR),
    "TP2, SP": Shape(
        2,
        (*TENSOR, "--sequence-parallel"),
        collectives={
            ("TP", "all_gather"): MICROBATCHES * (6 * LAYERS + 1 + 1 + 1),
            ("TP", "reduce_scatter"): MICROBATCHES * (4 * LAYERS + 1),
        },
    ),
    "PP2, recompute": Shape(2, (*PIPELINE, *FULL), ({0, 1}, {2, 3}), BOTH | {"recompute"}),
    "PP2, VPP, recompute": Shape(
        2,
        (*PIPELINE, "--num-layers-per-virtual-pipeline-stage", "1", *FULL),
        ({0, 2}, {1, 3}),
        BOTH | {"recompute"},
        # between four chunks three times forward, and as often back
        {("PP", "send"): 3 * MICROBATCHES, ("PP", "recv"): 3 * MICROBATCHES},
    ),
    # tokens to their experts, their probabilities, and the tokens back
    "EP2, selective recompute, Megatron-LM's own script": Shape(
        2,
        (*EXPERTS, *SELECTIVE),
        parts=BOTH | {"recompute"},
        script=MEGATRON,
        collectives={("EP", "all_to_all"): 2 * 3 * LAYERS},
    ),
}


def train(directory: Path, shape: Shape, *words: str) -> fs.Finished:
    """To the end, in a directory that is made."""
    script = [
        shape.script,
        *fs.SMALL,
        "--num-layers",
        LAYERS,
        "--train-iters",
        ITERATIONS,
        "--tensorboard-dir",
        directory / "tb",
    ]
    directory.mkdir()
    return fs.run(
        fs.workers(shape.ranks, *fs.launched(*map(str, script), *shape.arguments, *words)), directory
    )


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
        collectives: as of a `Shape`, in all profiled steps.
        steps: records, in their order.
        windows: profiled steps, clean ones, and why there is no row, as a name's number.
    """

    def __init__(self) -> None:
        self.rows: set[tuple[int, str]] = set()
        self.collectives: Counter[tuple[str, str]] = Counter()
        self._names = {0: ""}
        self._self_ns = 0
        self.steps: list[dict[str, Any]] = []
        self.windows: list[tuple[int, int, int]] = []

    def add(self, record: dict[str, Any]) -> None:
        """The next record of the rank."""
        kind = record["kind"]
        if kind == "name":
            self._names[record["number"]] = record["text"]
        elif kind == "profile_row":
            self._self_ns += record["self_ns"]
            path = self._names[record["module"]].split(".")
            at = path.index("layers") + 1 if "layers" in path else len(path)
            if at < len(path):
                self.rows.add((int(path[at]), self._names[record["phase"]]))
        elif kind == "profile_collective":
            self._add_collective(record)
        elif kind == "profile_step":
            self.steps.append(record)
        elif kind == "profile_window":
            self.windows.append((record["steps"], record["clean_steps"], record["reason"]))

    def _add_collective(self, record: dict[str, Any]) -> None:
        """By what was called: gloo scatters by reducing everything."""
        call = self._names[record["call"]].partition("::")[2]
        op = "reduce_scatter" if "reduce_scatter" in call else self._names[record["op"]].partition(":")[2]
        self.collectives[label_of(self._names[record["group"]]), op] += 1

    @property
    def residuals(self) -> list[float]:
        """Of each profiled step, as a share of it."""
        return [abs(step["residual_ns"]) / step["total_ns"] for step in self.steps if step["is_profiled"]]

    def check(self, shape: Shape, rank: int) -> None:
        """Rows and collectives are those of the shape; two steps are profiled, two clean; the books close."""
        assert self.rows == {(layer, part) for layer in shape.layers[rank] for part in shape.parts}
        found = {key: self.collectives[key] for key in shape.collectives}
        assert found == {key: STEPS * count for key, count in shape.collectives.items()}, self.collectives
        assert self.windows == [(STEPS, STEPS, 0)]
        steps = [(step["iteration"], step["is_profiled"]) for step in self.steps]
        assert steps == [(3, 1), (4, 0), (5, 1), (6, 0)]
        assert {(step["samples"], step["tokens"]) for step in self.steps} == {(4, 4 * 64)}
        self.check_books()

    def check_books(self) -> None:
        """Parts and residual make each profiled step, and the rows make them all."""
        profiled = [step for step in self.steps if step["is_profiled"]]
        for step in profiled:
            assert sum(step[part] for part in PARTS) == step["total_ns"]
        # a busy machine may take the processor away between the two clocks: not from every step of several
        assert len(profiled) == 1 or min(self.residuals) < 0.01
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


def check_profile(directory: Path, tokens: int, layers: Sequence[set[int]]) -> dict[int, Profile]:
    """Of a loop that is not FlagScale's, with rows for these layers of each rank: 3 profiled, 4 clean."""
    found = profiles(sessions(directory)["profile"])
    assert sorted(found) == list(range(len(layers)))
    for rank, profile in found.items():
        assert profile.rows == {(layer, part) for layer in layers[rank] for part in BOTH}
        assert profile.windows == [(1, 1, 0)]
        steps = [(step["iteration"], step["is_profiled"], step["tokens"]) for step in profile.steps]
        assert steps == [(3, 1, tokens), (4, 0, tokens)]
        profile.check_books()
    return found


def check(name: str, directory: Path) -> Iterator[str]:
    """Raises AssertionError for what is not as the shape has it; what was found, in words."""
    shape = SHAPES[name]
    off, on = train(directory / "off", shape), train(directory / "on", shape, *MONITOR)
    assert (off.returncode, on.returncode) == (0, 0), off.output[-3000:] + on.output[-3000:]
    losses = fs.host_losses(directory / "on" / "tb")
    assert losses == fs.host_losses(directory / "off" / "tb") and len(losses) == ITERATIONS
    assert on.lines == off.lines
    assert (
        "flagscale_perf: 2 iterations from 3 on are profiled, each beside 1 clean; they take longer"
        in on.output
    )
    found = sessions(directory / "on" / "perf")
    assert set(found) == {"training", "profile"}
    trained = [record["iteration"] for record in found["training"] if record["kind"] == "step"]
    assert trained == list(range(1, ITERATIONS + 1))
    profiled = profiles(found["profile"])
    assert sorted(profiled) == list(range(shape.ranks))
    yield f"{name}: {len(losses)} losses are the same"
    for rank, profile in profiled.items():
        profile.check(shape, rank)
        named = ", ".join(
            f"{label} {op} {count}" for (label, op), count in sorted(profile.collectives.items())
        )
        yield (
            f"  rank {rank}: layers {sorted(shape.layers[rank])} in {', '.join(sorted(shape.parts))};"
            f" residual {max(profile.residuals):.2%} of a step at most; collectives: {named}"
        )


def main() -> int:
    """Those that are named, or all."""
    failed = 0
    for name in sys.argv[1:] or SHAPES:
        with tempfile.TemporaryDirectory() as directory:
            try:
                for line in check(name, Path(directory)):
                    print(line, flush=True)
            except AssertionError as error:
                failed += 1
                print(f"{name}: FAILED: {error}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
