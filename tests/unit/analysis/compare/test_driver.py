"""Runs compared unit by unit, for any instrument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.analysis.compare.blocks import report_of
from flagscale_perf.analysis.compare.compare import (
    NOT_SLOWER,
    CompareOptions,
    Difference,
    Disturbance,
    Figure,
    Gate,
    RunEntry,
    Slowing,
    Terms,
)
from flagscale_perf.analysis.compare.driver import Compared, Units, differences, used_parts, warm
from flagscale_perf.analysis.compare.judge import FASTER, SLOWER, UNDECIDED
from flagscale_perf.analysis.job import open_session
from flagscale_perf.report.format import shown
from flagscale_perf.spine.errors import PerfError
from tests.run_files import steady, write

TERMS = Terms("round", 100, {"mean": ("mean", 2), "p95": ("p95", 2), "moved": ("moved", 1)}, noise=0.01)
Parts = Mapping[str, Sequence[float | None]]


@pytest.fixture
def runs(tmp_path: Path) -> list[Units]:
    """BASE and NEW: rounds of 10 and of 20 ms, which take longer to put."""
    made = []
    for name, put, left_out in (("a", 6.0, {"rounds at the start": 2}), ("b", 16.0, {})):
        session = open_session(write(tmp_path / f"{name}.jsonl", steady(3), hostname=name))
        parts: Parts = {"get": [4.0] * 50, "put": [put] * 50}
        cores = {"cores": 2 if name == "a" else 4}
        made.append(Units(session, [4.0 + put] * 50, parts, left_out, cores, {"moved": [2.0] * 50}))
    return made


def compared(runs: Sequence[Units], *times: Sequence[float], **options: float | str) -> Compared:
    """One run a side; with these times and no parts where they are given."""
    if times:
        runs = [replace(run, times=row, parts={}) for run, row in zip(runs, times, strict=True)]
    return Compared(runs[:1], runs[1:], TERMS, CompareOptions(**options))


def test_the_whole_comparison_follows_from_the_units(runs: list[Units], tmp_path: Path) -> None:
    runs[1] = replace(runs[1], skipped_lines=3, times=[*runs[1].times, 99.0], title="session 7")
    judged = compared(runs, fail_if_slower=0.5)
    other = replace(judged.whole, name="another kind")
    found = judged.comparison(({"rate": 1.0}, {"rate": 0.5}), others=[other])
    assert (found.judged, found.basis, found.unit) == ("median", "round", "ms")
    assert (found.iterations, found.first_iteration, found.last_iteration) == (50, 1, 50)
    assert found.is_by_iteration
    paths = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    assert found.base_runs == [RunEntry(paths[0], "a", 10.0, {"rounds at the start": 2}, 0)]
    assert found.new_runs == [RunEntry(paths[1], "session 7", 20.0, {"not in every run": 1}, 3)]
    assert found.figures == [
        Figure("mean", 10.0, 20.0, 1.0),
        Figure("p95", 10.0, 20.0, 1.0),
        Figure("moved", 2.0, 2.0, 0.0),
        Figure("rate", 1.0, 0.5, -0.5),
    ]
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


def test_an_amount_that_is_not_known_once_is_not_known(runs: list[Units]) -> None:
    runs[1] = replace(runs[1], amounts={"moved": [None, *[2.0] * 49]})
    assert compared(runs).comparison().figures[2] == Figure("moved", 2.0, None, None)


def test_the_facts_that_differ_in_their_order() -> None:
    assert differences({"cores": 2, "host": "a"}, {"host": "a", "cores": 4, "load": 1.0}) == [
        Difference("cores", 2, 4),
        Difference("load", None, 1.0),
    ]


def test_warm_up_is_a_fourth_at_most_and_enough_must_remain(runs: list[Units]) -> None:
    session = runs[0].session
    assert [warm(session, 40, warmup, "rounds") for warmup in (0, 7, 99)] == [0, 7, 10]
    with pytest.raises(PerfError, match="a.jsonl' has 9 rounds; 10 are needed: record a longer run"):
        warm(session, 9, 99, "rounds")


def test_parts_without_time_in_any_run_are_left_out(runs: list[Units]) -> None:
    empty = [replace(run, parts={**run.parts, "wait": [0.0] * 50}) for run in runs]
    assert [[*run.parts] for run in used_parts(empty)] == [["get", "put"]] * 2
    empty[1] = replace(empty[1], parts={**empty[1].parts, "wait": [None, 0.1, *[0.0] * 48]})
    assert [[*run.parts] for run in used_parts(empty)] == [["get", "put", "wait"]] * 2


def test_a_run_or_its_copy_counts_once_a_side_and_on_both_is_said(runs: list[Units], tmp_path: Path) -> None:
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(runs[0].session.path.read_bytes())
    twin = replace(runs[0], session=open_session(copy))
    assert compared([runs[0], twin]).same_run == "copy"
    assert compared(runs).same_run is None
    with pytest.raises(
        PerfError, match="a.jsonl' and '.*copy.jsonl' are the same run, and a run counts once"
    ):
        Compared([runs[0], twin], [runs[1]], TERMS, CompareOptions())


def test_runs_are_drawn_over_each_other(runs: list[Units]) -> None:
    (series,) = compared(runs).trend().blocks
    (panel,) = series.panels
    assert (panel.title, panel.unit) == ("Time of a round", "ms")
    assert [(line.label, line.y, line.colour) for line in panel.lines] == [
        ("BASE 1", [10.0] * 50, "blue"),
        ("NEW 1", [20.0] * 50, "orange"),
    ]


def test_options_decide_the_noise_and_a_run_on_both_sides_leaves_the_gate_undecided(
    runs: list[Units],
) -> None:
    found = compared([runs[0], runs[0]], fail_if_slower=0.5, noise=0.02, judge="mean").comparison()
    assert (found.judged, found.noise, found.noise_source) == ("mean", 0.02, "--noise")
    assert (found.same_run, found.gate) == ("a", Gate(0.5, UNDECIDED))


def later(runs: Sequence[Units], place: int, more: float) -> Compared:
    """NEW takes so much more from that unit on."""
    even = [10.0 + number % 3 / 100 for number in range(100)]
    new = [*even[:place], *(time + more for time in even[place:])]
    made = [
        replace(run, times=row, parts={"get": even, "put": row}, amounts={})
        for run, row in zip(runs, (even, new), strict=True)
    ]
    return compared(made, fail_if_slower=0.04)


@pytest.mark.parametrize("place", [15, 50, 85])
def test_what_lies_before_and_after_a_change_of_a_run_is_judged_apart(runs: list[Units], place: int) -> None:
    found = later(runs, place, 2.0).comparison()
    before, after = found.stretches
    assert (before.first, before.last + 1, after.last) == (1, after.first, 100)
    assert abs(before.last - place) <= 1
    assert (before.whole.verdict, after.whole.verdict) == (UNDECIDED, SLOWER)
    assert (before.culprits, after.culprits) == ([], ["put"])
    assert after.whole.share == pytest.approx(0.2, abs=0.01)
    assert (found.needed, found.gate) == (None, Gate(0.04, SLOWER))
    faster = later(runs, place, -2.0).comparison()
    assert [one.whole.verdict for one in faster.stretches] == [UNDECIDED, FASTER]
    assert faster.gate == Gate(0.04, NOT_SLOWER)


def test_two_changes_make_three_stretches_and_what_does_not_differ_is_one(runs: list[Units]) -> None:
    even, odd = ([10.0 + number % 3 / 100 for number in range(90)] for _ in range(2))
    base = [*even[:30], *(time + 3 for time in even[30:])]
    new = [*odd[:60], *(time + 6 for time in odd[60:])]
    found = compared(runs, base, new).comparison().stretches
    assert [one.whole.verdict for one in found] == [UNDECIDED, FASTER, SLOWER]
    assert list(compared(runs, base, base).comparison().stretches) == []


@pytest.mark.parametrize(
    ("side", "share", "new_ms", "outcome"),
    [
        ("BASE", 0.6, 5.0, UNDECIDED),  # faster: perhaps because BASE was disturbed
        ("BASE", 0.2, 5.0, NOT_SLOWER),  # faster by more than that can be
        ("NEW", 0.6, 5.0, NOT_SLOWER),  # faster in spite of it
        ("BASE", 0.2, 10.0, UNDECIDED),
        ("NEW", 0.2, 10.0, NOT_SLOWER),
        ("BASE", 0.6, 20.0, SLOWER),  # slower in spite of it
        ("NEW", 0.6, 20.0, UNDECIDED),
        ("NEW", 0.2, 20.0, SLOWER),  # slower by more than that can be
    ],
)
def test_a_disturbance_that_may_be_all_there_is_leaves_the_gate_undecided(
    runs: list[Units], side: str, share: float, new_ms: float, outcome: str
) -> None:
    place = 0 if side == "BASE" else 1
    runs[place] = replace(runs[place], slowed=[Slowing("{} was short of CPU", share)])
    found = compared(runs, [10.0] * 50, [new_ms] * 50, fail_if_slower=0.05, noise=0.001).comparison()
    assert found.gate == Gate(0.05, outcome)
    assert found.disturbed == [Disturbance(side, f"{side} was short of CPU", share, outcome == UNDECIDED)]
    report = report_of(found)
    first = shown(report.facts[0].text)
    opens = first == f"UNDECIDED: {side} was short of CPU; run it again where nothing else runs"
    ends = f"{'but' if outcome == UNDECIDED else 'though'} {side} was short of CPU"
    assert opens == (outcome == UNDECIDED)
    assert shown(report.title).endswith(f", {ends}{': not comparable' if outcome == UNDECIDED else ''}")


def test_all_of_a_disturbance_may_lie_in_one_stretch(runs: list[Units]) -> None:
    """NEW takes a fifth more in its last 20 rounds of 100: of these 0.5 % of all is 2.5 %, 5 % a fourth."""
    runs[1] = replace(runs[1], slowed=[Slowing("{} was short of CPU", 0.005)])
    assert later(runs, 80, 2.0).gate == Gate(0.04, SLOWER)
    runs[1] = replace(runs[1], slowed=[Slowing("{} was short of CPU", 0.05)])
    assert later(runs, 80, 2.0).gate == Gate(0.04, UNDECIDED)


def test_a_disturbed_run_of_several_counts_by_its_part_of_the_side(runs: list[Units], tmp_path: Path) -> None:
    """One of three runs was disturbed for 60 %: the side for 20 %."""
    others = [open_session(write(tmp_path / f"{n}.jsonl", steady(3), hostname=str(n))) for n in range(4)]
    base = [runs[0], *(replace(runs[0], session=one) for one in others[:2])]
    disturbed = replace(runs[1], slowed=[Slowing("{} was short of CPU", 0.6)])
    new = [*(replace(runs[1], session=one) for one in others[2:]), disturbed]
    found = Compared(base, new, TERMS, CompareOptions(fail_if_slower=0.05)).comparison()
    (one,) = found.disturbed
    assert (one.words, one.share) == ("NEW's run 3 was short of CPU", pytest.approx(0.2))
    assert found.gate == Gate(0.05, SLOWER)
