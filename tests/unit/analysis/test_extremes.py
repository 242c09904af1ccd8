"""A series that is thinned for a chart keeps what stands out."""

from __future__ import annotations

import random

import pytest

from flagscale_perf.analysis.extremes import Extremes, thinned


@pytest.mark.parametrize("count", [1, 7, 2000, 2001, 5000, 100_000])
def test_a_single_high_or_low_value_is_kept_wherever_it_is(count) -> None:
    places = {0, count // 2, count - 1, *(random.Random(count).randrange(count) for _ in range(1))}
    for place in places:
        for value in (-1.0, 9.0):
            rows = thinned(((at, value if at == place else 1.0) for at in range(count)), lambda row: row[1])
            assert (place, value) in rows
            assert len(rows) <= 2001
            assert rows == sorted(rows)


def test_few_rows_are_all_kept_and_each_once() -> None:
    rows = [(at, float(at % 7)) for at in range(2000)]
    assert thinned(rows, lambda row: row[1]) == rows
    assert thinned([], lambda row: row[1]) == []


def test_a_gap_is_kept_where_a_stretch_has_nothing_else() -> None:
    rows = [(at, None if 250 <= at < 800 else 1.0) for at in range(1000)]
    kept = thinned(rows, lambda row: row[1], 10)
    assert all(value is None for at, value in kept if 250 <= at < 800)
    assert any(value is None for _, value in kept)


def test_memory_does_not_grow() -> None:
    kept: Extremes[int] = Extremes(8)
    for number in range(10_000):
        kept.add([float(number)], [number].__getitem__)
        assert len(kept.rows()) <= 17
    assert kept.rows()[0] == 0
    assert kept.rows()[-1] == 9999


@pytest.mark.parametrize("block", [1, 3, 64, 1000])
def test_rows_that_come_together_are_kept_as_those_that_come_one_by_one(block) -> None:
    values = [random.Random(at).random() if at % 5 else None for at in range(3000)]
    together: Extremes[int] = Extremes(50)
    for begin in range(0, len(values), block):
        part = range(begin, min(begin + block, len(values)))
        together.add([values[at] for at in part], part.__getitem__)
    assert together.rows() == thinned(range(len(values)), values.__getitem__, 50)
