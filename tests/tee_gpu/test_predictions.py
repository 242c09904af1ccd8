"""The table of predicted and measured savings: of given rounds, and a run."""

from __future__ import annotations

import re

import pytest
from diagnosis.observed import Load, Observed

from benchmarks.bench_rpc_predictions import Change
from tests.conftest import REPO
from tests.tee_gpu import programs
from tests.tee_gpu.calibrations import MIB, fixed

BENCHMARK = REPO / "benchmarks/bench_rpc_predictions.py"
LOADS = (Load(100, 100 * MIB, 100 * MIB),)  # 0.84 s by msgpack, 0.024 in shared memory
HERE = fixed(LOADS)


def took(payload: str, carrying_s: float) -> Observed:
    return Observed(LOADS, "x", carrying_s + 1.0, 1.0, "IPC", payload)


def test_a_round_holds_misses_or_says_nothing() -> None:
    change = Change()
    for now, then in ((0.84, 0.025), (0.9, 0.5), (3.0, 0.03)):
        change.add(HERE, took("msgpack", now), took("shared", then))
    assert change.true_s == pytest.approx([0.815, 0.4, 2.97])
    *_, held, missed, silent = change.row("msgpack", "shared")
    assert (held, missed, silent) == ("1", "1", "1")


def test_a_round_without_the_servers_time_does_not_count() -> None:
    change = Change()
    change.add(HERE, took("msgpack", 0.84), Observed(LOADS, "x", 1.0, None, "IPC", "shared"))
    assert change.said == []


def test_every_path_is_held_against_every_other(tmp_path) -> None:
    output = tmp_path / "predictions.txt"
    words = ("--config", "tiny-mha", "--tokens", "16", "--rounds", "1", "--output", output)
    program = programs.with_warm_children(BENCHMARK, tmp_path)
    made = programs.run(program, *words, cwd=tmp_path)
    assert (made.returncode, made.stderr) == (0, "")
    rows = re.findall(r"^\| (msgpack|frames|shared) \| (msgpack|frames|shared) \|", made.stdout, re.MULTILINE)
    assert len(set(rows)) == 6
    assert "\ntiny-mha, float32, a prompt of 16 tokens, 1 rounds, one thread a side\n" in made.stdout
    assert output.read_text() == made.stdout
