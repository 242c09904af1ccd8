"""A number for each sample."""

from __future__ import annotations

from flagscale_perf.trace.analysis.lives import PAGE, Indexes
from flagscale_perf.trace.analysis.transfers import Ranges, Transfer, Transfers, What
from tests.trace_runs import make_operation


def _transfer(ranges: Ranges, partition: str = "train") -> Transfer:
    kept = Transfers()
    kept.add(make_operation(), "P", What(partition, ranges))
    return kept.transfers[0]


def test_what_is_written_is_read_in_ranges_and_one_by_one() -> None:
    indexes = Indexes()
    for piece in indexes.pieces(_transfer(((PAGE - 2, 4),))):
        piece.write([7] * len(piece.places))
    single = _transfer(((PAGE - 1, 1), (5, 1), (PAGE, 1)))
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
    for piece in indexes.pieces(_transfer(((0, 8),))):
        piece.write([1] * 8)
    assert [piece.read() for piece in indexes.pieces(_transfer(((0, 8),), "validate"))] == [[0] * 8]
    assert indexes.counted() == {1: 8}
