"""Intervals in columns: the same ones as records, and sums that know what is not known."""

from __future__ import annotations

import pytest

from flagscale_perf.training.columns import Intervals, highest_of, known_total, total
from tests.fakes import make_interval

RECORDS = [make_interval(number, tokens=10 * number) for number in (1, 2, 3, 4)]


def test_a_column_adds_up() -> None:
    columns: list[list[int | None]] = [[1, 2], [1, None], [None], []]
    assert [*map(total, columns)] == [3, None, None, 0]
    assert [*map(known_total, columns)] == [3, 1, None, 0]
    assert [*map(highest_of, columns)] == [2, 1, None, None]


def test_intervals_come_back_as_they_were() -> None:
    intervals = Intervals.of(RECORDS)
    assert [intervals.one(number) for number in range(len(intervals))] == RECORDS
    assert intervals.seen(2).tokens == RECORDS[2].tokens
    with pytest.raises(KeyError):
        intervals["none of theirs"]


def test_some_of_them() -> None:
    intervals = Intervals.of(RECORDS)
    assert intervals.part(0, 4) is intervals.those([1, 1, 1, 1]) is intervals
    behind = intervals.part(1, 4)
    assert (len(behind), [*behind["tokens"]], behind.one(0)) == (3, [20, 30, 40], RECORDS[1])
    chosen = behind.those([True, False, True])
    assert ([*chosen["iteration"]], chosen.one(1), chosen.seen(1).tokens) == ([2, 4], RECORDS[3], 40)
    assert len(Intervals.made([])) == len(behind.those([0, 0, 0])) == 0
