"""All ranks side by side, as a record has them."""

from __future__ import annotations

from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.rank_records import MAX_ENTRIES, RanksRecord
from flagscale_perf.training.ranks.blocks import Block
from flagscale_perf.training.ranks.table import MAX_ROUNDS, MAX_SILENT, RanksTable

GB = 10**9


def block_of(rank: int, number: int, forward_ns: int | None = None, peak: int | None = None) -> Block:
    phases = None if forward_ns is None else tuple(forward_ns if name == "forward" else 0 for name in PHASES)
    return Block(rank, 5 * number, 5 * number + 4, 5, 1, 100, phases, peak, None, None, None, None)


def test_a_record_has_medians_over_the_rounds_and_the_highest_peak() -> None:
    table = RanksTable(3)
    assert table.is_empty
    for number, (forward_ns, peak) in enumerate([(10, 3 * GB), (90, 7 * GB), (30, 5 * GB)], 1):
        table.add({0: block_of(0, number, forward_ns, peak), 1: block_of(1, number)})
    assert table.take() == RanksRecord(
        first_iteration=5, iteration=19, ranks_per_entry=1,
        iteration_ns=[100, 100, None], work_ns=[30, None, None], wait_ns=[0, None, None],
        data_ns=[0, None, None], memory_peak_bytes=[7 * GB, None, None], silent=[2], silent_count=1,
    )  # fmt: skip
    assert table.is_empty


def test_of_many_rounds_the_newest_are_kept() -> None:
    table = RanksTable(1)
    for number in range(1, 20):
        table.add({0: block_of(0, number, forward_ns=number)})
    record = table.take()
    assert (record.first_iteration, record.iteration) == (5 * (20 - MAX_ROUNDS), 99)
    assert record.work_ns == [round((19 + 20 - MAX_ROUNDS) / 2)]


def test_training_that_goes_back_begins_a_new_stretch() -> None:
    table = RanksTable(1)
    for number in (7, 8, 2):
        table.add({0: block_of(0, number)})
    assert (record := table.take()).first_iteration == 10
    assert record.iteration == 14


def test_of_ranks_that_share_an_entry_the_one_that_works_longest_stands_for_them() -> None:
    size = 2 * MAX_ENTRIES + 1
    table = RanksTable(size)
    table.add({rank: block_of(rank, 1, forward_ns=rank % 7, peak=rank) for rank in range(6)})
    record = table.take()
    assert (record.ranks_per_entry, len(record.work_ns)) == (3, -(-size // 3))
    assert (record.work_ns[:3], record.memory_peak_bytes[:3]) == ([2, 5, None], [2, 5, None])
    assert (record.silent[0], len(record.silent), record.silent_count) == (6, MAX_SILENT, size - 6)
