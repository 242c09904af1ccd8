"""A number for each sample."""

from __future__ import annotations

from flagscale_perf.trace.analysis.lives import PAGE, Indexes
from flagscale_perf.trace.analysis.moves import Move, Moves, Ranges, What
from tests.trace_runs import make_operation


def _move(ranges: Ranges, partition: str = "train") -> Move:
    kept = Moves()
    kept.add(make_operation(), "P", What(partition, ranges))
    return kept.moves[0]


def test_what_is_written_is_read_in_ranges_and_one_by_one() -> None:
    indexes = Indexes()
    for piece in indexes.pieces(_move(((PAGE - 2, 4),))):
        piece.write([7] * len(piece.places))
    single = _move(((PAGE - 1, 1), (5, 1), (PAGE, 1)))
    found = {
        piece.base + place: number
        for piece in indexes.pieces(single)
        for place, number in zip(piece.places, piece.read(), strict=True)
    }
    assert found == {PAGE - 1: 7, 5: 0, PAGE: 7}
    for piece in indexes.pieces(single):
        piece.write([place + 1 for place in piece.places])
    assert indexes.counted() == {7: 2, 1: 1, 6: 1, PAGE: 1}


def test_partitions_are_apart() -> None:
    indexes = Indexes()
    for piece in indexes.pieces(_move(((0, 8),))):
        piece.write([1] * 8)
    assert [piece.read() for piece in indexes.pieces(_move(((0, 8),), "validate"))] == [[0] * 8]
    assert indexes.counted() == {1: 8}
