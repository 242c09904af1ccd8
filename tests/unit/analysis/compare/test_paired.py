"""Runs compared unit by unit, for any instrument."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from flagscale_perf.analysis.compare.compare import (
    CompareOptions,
    Difference,
    Figure,
    Gate,
    RunEntry,
)
from flagscale_perf.analysis.compare.judge import SLOWER, UNDECIDED
from flagscale_perf.analysis.compare.paired import Paired


class Run(NamedTuple):
    path: Path
    title: str
    skipped_lines: int


PAIRED = Paired(
    runs=[Run(Path("a.jsonl"), "a", 0), Run(Path("b.jsonl"), "b", 3)],
    cut=1,
    noun="round",
    times=[[10.0] * 50, [20.0] * 50],
    parts={"get": [[4.0] * 50, [4.0] * 50], "put": [[6.0] * 50, [16.0] * 50]},
    left_out=[{"rounds at the start": 2}, {}],
    most=100,
    noise=0.01,
    same_run=None,
)


def test_the_whole_comparison_follows_from_the_times() -> None:
    judged = PAIRED.judged(CompareOptions(fail_if_slower=0.5))
    other = replace(judged.whole, name="another kind")
    found = judged.comparison(({"mean": 10.0}, {"mean": 20.0}), [Difference("cores", 2, 4)], others=[other])
    assert (found.judged, found.basis, found.unit) == ("median", "round", "ms")
    assert (found.iterations, found.first_iteration, found.last_iteration) == (50, 1, 50)
    assert found.is_by_iteration
    assert found.base_runs == [RunEntry("a.jsonl", "a", 10.0, {"rounds at the start": 2}, 0)]
    assert found.new_runs == [RunEntry("b.jsonl", "b", 20.0, {}, 3)]
    assert found.figures == [Figure("mean", 10.0, 20.0, 1.0)]
    assert (found.whole.base, found.whole.new, found.whole.verdict) == (10.0, 20.0, SLOWER)
    assert [(row.name, row.base, row.new) for row in found.phases] == [
        ("get", 4.0, 4.0),
        ("put", 6.0, 16.0),
        ("another kind", 10.0, 20.0),
    ]
    assert found.culprits == ["put"]
    assert (found.noise, found.noise_source) == (0.01, "assumed")
    assert found.differences == [Difference("cores", 2, 4)]
    assert found.gate == Gate(0.5, SLOWER)


def test_options_decide_the_noise_and_a_run_on_both_sides_leaves_the_gate_undecided() -> None:
    options = CompareOptions(fail_if_slower=0.5, noise=0.02, judge="mean")
    found = replace(PAIRED, same_run="a").judged(options).comparison(({}, {}), [])
    assert (found.judged, found.noise, found.noise_source) == ("mean", 0.02, "--noise")
    assert (found.same_run, found.gate) == ("a", Gate(0.5, UNDECIDED))
