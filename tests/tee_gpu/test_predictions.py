"""The table of predicted and measured savings: of given rounds, and a run."""

from __future__ import annotations

import re

import pytest
from diagnosis.costs import Traffic
from diagnosis.observed import Observed
from predictions import Change

from tests.tee_gpu import programs
from tests.tee_gpu.calibrations import FIXED, MIB

TRAFFIC = Traffic.alike(100, 100 * MIB, 100 * MIB)  # 0.84 s by msgpack, 0.024 in shared memory


def took(payload: str, carrying_s: float) -> Observed:
    return Observed(TRAFFIC, "x", carrying_s + 1.0, 1.0, None, "IPC", payload)


def test_a_round_holds_misses_or_says_nothing() -> None:
    change = Change()
    for now, then in ((0.84, 0.025), (0.9, 0.5), (3.0, 0.03)):
        change.add(FIXED, took("msgpack", now), took("shared", then))
    assert change.true_s == pytest.approx([0.815, 0.4, 2.97])
    *_, held, missed, silent = change.row("msgpack", "shared")
    assert (held, missed, silent) == ("1", "1", "1")


def test_a_round_without_the_servers_time_does_not_count() -> None:
    change = Change()
    change.add(FIXED, took("msgpack", 0.84), Observed(TRAFFIC, "x", 1.0, None, None, "IPC", "shared"))
    assert change.said == []


def test_every_path_is_held_against_every_other(tmp_path) -> None:
    output = tmp_path / "predictions.txt"
    words = ("--config", "tiny-mha", "--tokens", "16", "--rounds", "1", "--output", output)
    made = programs.run(programs.with_warm_children("predictions.py", tmp_path), *words, cwd=tmp_path)
    assert (made.returncode, made.stderr) == (0, "")
    rows = re.findall(r"^\| (msgpack|frames|shared) \| (msgpack|frames|shared) \|", made.stdout, re.MULTILINE)
    assert len(set(rows)) == 6
    assert "\ntiny-mha, float32, a prompt of 16 tokens, 1 rounds, one thread a side\n" in made.stdout
    assert output.read_text() == made.stdout
