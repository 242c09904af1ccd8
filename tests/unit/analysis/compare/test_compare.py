"""What follows from the rows of a comparison."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flagscale_perf.analysis.compare.compare import Terms, culprits, relative
from flagscale_perf.analysis.compare.judge import FASTER, UNDECIDED
from tests.unit.analysis.compare.test_gate import ROW


def test_a_culprit_is_a_part_of_a_whole_that_is_slower() -> None:
    parts = [replace(ROW, name="small", change=1), replace(ROW, name="same", verdict=UNDECIDED), ROW]
    assert culprits(ROW, parts) == ["iteration", "small"]
    assert culprits(replace(ROW, verdict=FASTER), parts) == []


def test_a_change_needs_both_sides() -> None:
    assert (relative(100, 106), relative(0, 1), relative(1, None)) == (pytest.approx(0.06), None, None)


def test_a_noun_has_its_article() -> None:
    assert [Terms(noun, 1, {}).a_noun for noun in ("iteration", "round")] == ["an iteration", "a round"]
