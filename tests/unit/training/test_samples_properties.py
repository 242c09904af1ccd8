"""Of any stream a sample is bounded, and holds only what it was given."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf.training.samples import Reservoir, ThinnedRows


@given(st.lists(st.integers(0, 10**6), min_size=1), st.integers(1, 9), st.integers(1, 100))
def test_a_reservoir_is_bounded_and_holds_only_what_it_was_given(
    values: list[int], size: int, percent: int
) -> None:
    reservoir, again = Reservoir(size), Reservoir(size)
    for value in values:
        reservoir.add(value)
        again.add(value)
    found = reservoir.quantile(percent / 100)
    assert (found, reservoir.maximum) == (again.quantile(percent / 100), max(values))
    assert found in values
    assert len(reservoir._kept) == min(size, len(values))
    if len(values) <= size:
        assert sum(value <= found for value in values) >= percent / 100 * len(values)


@given(st.integers(0, 200), st.integers(2, 9))
def test_thinned_rows_are_bounded_in_order_and_end_with_the_last(count: int, limit: int) -> None:
    thinned: ThinnedRows[int] = ThinnedRows(limit)
    for row in range(count):
        thinned.add(row)
    kept = thinned.rows()
    assert len(kept) <= limit
    assert kept == sorted(set(kept) & set(range(count)))
    assert kept[-1:] == list(range(count))[-1:]
    assert kept[:1] == list(range(count))[:1]


@given(st.lists(st.lists(st.integers(), min_size=1, max_size=20), max_size=20), st.integers(1, 30))
def test_many_together_are_kept_as_one_by_one(parts: list[list[int]], size: int) -> None:
    one, many = Reservoir(size), Reservoir(size)
    for values in parts:
        many.add_many(values)
        for value in values:
            one.add(value)
    assert (one.kept(), one.minimum, one.maximum) == (many.kept(), many.minimum, many.maximum)


@given(st.lists(st.lists(st.integers(0, 9), max_size=20), max_size=20), st.integers(2, 9))
def test_rows_that_come_together_are_thinned_as_one_by_one(parts: list[list[int]], limit: int) -> None:
    """Rows are the very objects: where the last one is kept anyway, it is not there twice."""
    one, many = (ThinnedRows[tuple[int, int]](limit, lambda row: row[1]) for _ in range(2))
    count = 0
    for sizes in parts:
        rows = [*enumerate(sizes, count)]
        count += len(sizes)
        for row in rows:
            one.add(row)
        many.add_many(sizes, lambda number, rows=rows: (*rows[number],))
    assert one.rows() == many.rows()
