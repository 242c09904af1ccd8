"""The gate's answer, and when a disturbance leaves it open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flagscale_perf.analysis.compare.compare import BASE, NEW, NOT_SLOWER, Gate
from flagscale_perf.analysis.compare.gate import Judgement, doubted_side, doubted_sides, gate, gate_of
from flagscale_perf.analysis.compare.judge import FASTER, SLOWER, UNDECIDED, Needed, Row

ROW = Row("iteration", 100, 100, 100, 106, 106, 106, 6, 0.06, 0.026, 0.094, SLOWER)


def needed(distance: float) -> Needed:
    return Needed(round(1 / distance), None)


@pytest.mark.parametrize(
    ("limit", "outcome"),
    [
        (0.0, Gate(0.0, "slower")),
        (0.05, Gate(0.05, "slower")),
        (0.08, Gate(0.08, "undecided", Needed(53, None))),  # log(1.08 / 1.06) from the change
        (0.1, Gate(0.1, "not slower")),
    ],
)
def test_the_gate_of_a_run_that_is_slower(limit: float, outcome: Gate) -> None:
    assert gate(ROW, limit, needed) == outcome


def test_the_gate_of_a_run_that_may_be_slower_asks_for_an_interval_without_0() -> None:
    row = replace(ROW, share=0.04, share_low=-0.01, share_high=0.09, verdict=UNDECIDED)
    assert gate(row, 0.03, needed) == Gate(0.03, "undecided", Needed(25, None))  # log(1.04) from 0
    assert gate(row, 0.05, needed) == Gate(0.05, "undecided", Needed(104, None))  # log(1.05 / 1.04)


def judgement(verdict: str, low: float, high: float, base: float = 0.0, new: float = 0.0) -> Judgement:
    """A change whose interval has these ends, beside sides that were disturbed for such shares."""
    row = replace(ROW, share=(low + high) / 2, share_low=low, share_high=high, verdict=verdict)
    return Judgement(row, {BASE: base, NEW: new})


@pytest.mark.parametrize(
    ("verdict", "low", "high", "base", "new", "side"),
    [
        (SLOWER, 2.0, 3.0, 0, 0.2, None),  # three times the time, of which a fifth is no explanation
        (SLOWER, 2.0, 3.0, 0, 0.7, NEW),
        (SLOWER, 0.25, 0.5, 0, 0.2, NEW),  # 1.25 x 0.8 is BASE's time: at the border it may be all
        (SLOWER, 0.26, 0.5, 0, 0.2, None),
        (SLOWER, 0.01, 0.5, 0, 0, None),  # not disturbed
        (SLOWER, 0.01, 0.5, 0.9, 0, None),  # slower in spite of it
        (FASTER, -0.9, -0.8, 0.5, 0, None),
        (FASTER, -0.6, -0.5, 0.5, 0, BASE),  # half of BASE's time may be the disturbance
        (FASTER, -0.6, -0.51, 0.5, 0, None),
        (FASTER, -0.6, -0.5, 0, 0.5, None),  # faster in spite of it
        (NOT_SLOWER, -0.01, 0.01, 0.05, 0, BASE),
        (UNDECIDED, -0.1, 0.1, 0.9, 0.9, None),  # is open as it is
        (SLOWER, 9.0, 9.9, 0, 1.2, NEW),  # it stood still for all of its time and longer
    ],
)
def test_a_disturbance_is_a_doubt_where_it_can_explain_the_verdict(
    verdict, low, high, base, new, side
) -> None:
    assert doubted_side(verdict, judgement(verdict, low, high, base, new), 0.0) == side


@pytest.mark.parametrize(
    ("low", "high", "base", "new", "answer"),
    [
        (2.0, 3.0, 0, 0.2, SLOWER),
        (0.29, 0.3, 0, 0.2, SLOWER),  # 1.29 x 0.8 is 1.032
        (0.28, 0.3, 0, 0.2, UNDECIDED),  # 1.28 x 0.8 is 1.024, below the limit of 1.03
        (-0.2, -0.19, 0.2, 0, NOT_SLOWER),  # 0.81 against 0.8 x 1.03
        (-0.2, -0.17, 0.2, 0, UNDECIDED),  # 0.83 against 0.824
        (-0.2, -0.17, 0, 0.2, NOT_SLOWER),
    ],
)
def test_the_gate_is_open_only_where_a_disturbance_may_be_all_there_is(low, high, base, new, answer) -> None:
    one = judgement(SLOWER if low > 0 else FASTER, low, high, base, new)
    found, sides = gate_of([one], 0.03, needed)
    assert (found, sides) == (
        Gate(0.03, answer),
        set() if answer != UNDECIDED else {NEW if low > 0 else BASE},
    )


def test_one_stretch_that_is_slower_in_any_case_decides() -> None:
    doubtful, firm = judgement(SLOWER, 0.1, 0.2, new=0.3), judgement(SLOWER, 1.0, 2.0, new=0.3)
    same = judgement(UNDECIDED, -0.01, 0.01, new=0.3)
    assert gate_of([same, doubtful, firm], 0.03, needed) == (Gate(0.03, SLOWER), set())
    assert gate_of([same, doubtful], 0.03, needed) == (Gate(0.03, UNDECIDED), {NEW})
    assert doubted_sides([same, doubtful, firm]) == set()
    assert doubted_sides([same, doubtful]) == {NEW}
