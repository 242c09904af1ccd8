"""Runs compared unit by unit, for any instrument."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from flagscale_perf.analysis.compare.compare import (
    NOT_SLOWER,
    CompareOptions,
    Difference,
    Disturbance,
    Figure,
    Gate,
    RunEntry,
)
from flagscale_perf.analysis.compare.judge import FASTER, SLOWER, UNDECIDED
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


def later(place: int, more: float) -> Paired:
    """NEW takes so much more from that unit on."""
    even = [10.0 + number % 3 / 100 for number in range(100)]
    new = [*even[:place], *(time + more for time in even[place:])]
    return replace(PAIRED, times=[even, new], parts={"get": [even, even], "put": [even, new]})


@pytest.mark.parametrize("place", [15, 50, 85])
def test_what_lies_before_and_after_a_change_of_a_run_is_judged_apart(place) -> None:
    judged = later(place, 2.0).judged(CompareOptions(fail_if_slower=0.04))
    before, after = judged.stretches
    assert (before.first, before.last + 1, after.last) == (1, after.first, 100)
    assert abs(before.last - place) <= 1
    assert (before.whole.verdict, after.whole.verdict) == (UNDECIDED, SLOWER)
    assert (before.culprits, after.culprits) == ([], ["put"])
    assert after.whole.share == pytest.approx(0.2, abs=0.01)
    found = judged.comparison(({}, {}), [])
    assert (found.needed, found.gate) == (None, Gate(0.04, SLOWER))
    faster = later(place, -2.0).judged(CompareOptions(fail_if_slower=0.04))
    assert [one.whole.verdict for one in faster.stretches] == [UNDECIDED, FASTER]
    assert faster.gate == Gate(0.04, NOT_SLOWER)


def test_two_changes_make_three_stretches_and_what_does_not_differ_is_one() -> None:
    even, odd = ([10.0 + number % 3 / 100 for number in range(90)] for _ in range(2))
    base = [*even[:30], *(time + 3 for time in even[30:])]
    new = [*odd[:60], *(time + 6 for time in odd[60:])]
    judged = replace(PAIRED, times=[base, new], parts={}).judged(CompareOptions())
    assert [one.whole.verdict for one in judged.stretches] == [UNDECIDED, FASTER, SLOWER]
    both = replace(PAIRED, times=[base, base], parts={}).judged(CompareOptions())
    assert list(both.stretches) == []


@pytest.mark.parametrize(
    ("side", "new_ms", "outcome"),
    [
        ("BASE", 5.0, UNDECIDED),  # faster: perhaps because BASE was disturbed
        ("NEW", 5.0, NOT_SLOWER),  # faster in spite of it
        ("BASE", 10.0, UNDECIDED),
        ("NEW", 10.0, NOT_SLOWER),
        ("BASE", 20.0, SLOWER),  # slower in spite of it
        ("NEW", 20.0, UNDECIDED),
    ],
)
def test_a_disturbance_that_may_be_all_there_is_leaves_the_gate_undecided(side, new_ms, outcome) -> None:
    said = Disturbance(side, f"{side} was short of CPU")
    times = [[10.0] * 50, [new_ms] * 50]
    paired = replace(PAIRED, times=times, parts={}, disturbed=[said])
    found = paired.judged(CompareOptions(fail_if_slower=0.05)).comparison(({}, {}), [])
    assert found.gate == Gate(0.05, outcome)
    assert found.disturbed == [said]
