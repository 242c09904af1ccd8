"""All ranks side by side, as a record has them."""

from __future__ import annotations

from flagscale_perf.training.host import HostStretch
from flagscale_perf.training.rank_records import MAX_ENTRIES, RanksRecord
from flagscale_perf.training.ranks.blocks import Block
from flagscale_perf.training.ranks.table import MAX_ROUNDS, MAX_SILENT, RanksTable

GB = 10**9


def block_of(rank: int, number: int, forward_ns: int | None = None, peak: int | None = None) -> Block:
    parts = (None, None, None) if forward_ns is None else (forward_ns, 0, 0)
    return Block(rank, 5 * number, 5 * number + 4, 5, 100, *parts, peak, None, None, None, None)


def test_a_record_has_medians_over_the_rounds_and_the_highest_peak() -> None:
    table = RanksTable(3)
    assert table.is_empty
    for number, (forward_ns, peak) in enumerate([(10, 3 * GB), (90, 7 * GB), (30, 5 * GB)], 1):
        table.add({0: block_of(0, number, forward_ns, peak), 1: block_of(1, number)})
    assert table.take() == RanksRecord(
        first_iteration=5,
        iteration=19,
        ranks_per_entry=1,
        iteration_ns=[100, 100, None],
        work_ns=[30, None, None],
        wait_ns=[0, None, None],
        data_ns=[0, None, None],
        memory_peak_bytes=[7 * GB, None, None],
        silent=[2],
        silent_count=1,
    )
    assert table.is_empty


def test_of_many_rounds_the_newest_are_kept() -> None:
    table = RanksTable(1)
    for number in range(1, 20):
        table.add({0: block_of(0, number, forward_ns=number)})
    record = table.take()
    assert (record.first_iteration, record.iteration) == (5 * (20 - MAX_ROUNDS), 99)
    assert record.work_ns == [(19 + 20 - MAX_ROUNDS) // 2]


def test_of_ranks_that_share_an_entry_the_one_that_works_longest_stands_for_them() -> None:
    size = 2 * MAX_ENTRIES + 1
    table = RanksTable(size)
    table.add({rank: block_of(rank, 1, forward_ns=rank % 7, peak=rank) for rank in range(6)})
    record = table.take()
    assert (record.ranks_per_entry, len(record.work_ns)) == (3, -(-size // 3))
    assert (record.work_ns[:3], record.memory_peak_bytes[:3]) == ([2, 5, None], [2, 5, None])
    assert (record.silent[0], len(record.silent), record.silent_count) == (6, MAX_SILENT, size - 6)


def test_what_was_read_of_hosts_is_summed_and_of_many_ranks_the_most_delayed_ones_stays() -> None:
    table = RanksTable(2 * MAX_ENTRIES)
    for number, delay_ns in enumerate((10, 30), 1):
        hosts = [HostStretch(100, 4, delay_ns * rank, memory_available_bytes=9 - number) for rank in range(3)]
        table.add({rank: block_of(rank, number)._replace(host=host) for rank, host in enumerate(hosts)})
    record = table.take()
    assert record.hosts()[:3] == [
        HostStretch(200, 4, 40, memory_available_bytes=7),
        HostStretch(200, 4, 80, memory_available_bytes=7),
        HostStretch(),
    ]
    without_delays = HostStretch(100, 4, memory_available_bytes=5)
    table.add({0: block_of(0, 3), 1: block_of(1, 3)._replace(host=without_delays)})
    assert table.take().hosts()[0] == without_delays, "what was read, though not for how long it waited"
    table.add({0: block_of(0, 9)._replace(steps=0, iteration_ns=None, host=HostStretch(100, 4, 90))})
    assert table.take().host is None, "without a step that shows how fast the rank is"
