"""Real FlagScale 0.8.0 and Megatron-LM profiled: the same losses to the bit, rows for every layer of each
rank, books that close.
"""

from __future__ import annotations

from pathlib import Path

import pytest

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
