"""What follows from the rows of a comparison."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flagscale_perf.analysis.compare.compare import Gate, culprits, gate, relative
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


def test_a_culprit_is_a_part_of_a_whole_that_is_slower() -> None:
    parts = [replace(ROW, name="small", change=1), replace(ROW, name="same", verdict=UNDECIDED), ROW]
    assert culprits(ROW, parts) == ["iteration", "small"]
    assert culprits(replace(ROW, verdict=FASTER), parts) == []


def test_a_change_needs_both_sides() -> None:
    assert (relative(100, 106), relative(0, 1), relative(1, None)) == (pytest.approx(0.06), None, None)
