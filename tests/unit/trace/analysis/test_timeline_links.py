"""Which puts a get is linked to."""

from __future__ import annotations

from flagscale_perf.spine.peers.records import NameRecord
from flagscale_perf.trace.analysis.timeline import MAX_LINKS, links_of, pairs_of
from flagscale_perf.trace.records import ClearRecord, Kind, OperationRecord, RowsRecord
from tests.queue_sample import operation


def named(*operations: OperationRecord) -> list[object]:
    processes = {each.process for each in operations}
    return [*(NameRecord(process, 1, "train") for process in processes), *operations]


def _links(records: list[object]) -> dict[tuple[int, int], tuple[tuple[int, int], ...]]:
    return links_of(pairs_of(records))


def put(number: int, start_ns: int, process: int = 1, rows: range = range(4)) -> OperationRecord:
    return _of(Kind.PUT, number, start_ns, process, rows)


def get(number: int, start_ns: int, process: int = 9, rows: range = range(4)) -> OperationRecord:
    return _of(Kind.GET, number, start_ns, process, rows)


def _of(kind: Kind, number: int, start_ns: int, process: int, rows: range) -> OperationRecord:
    span = {"first_row": rows[0], "last_row": rows[-1], "rows": len(rows)} if rows else {"rows": 0}
    return operation(kind, number, start_ns, 100, process=process, **span)


def clear(start_ns: int) -> ClearRecord:
    return ClearRecord(1, 0, start_ns, 10, 1, 0, 0, 0, (0, 4))


def test_each_process_that_put_a_part_is_linked_oldest_first() -> None:
    found = _links(named(get(1, 5_000), put(4, 2_000, process=2), put(7, 1_000, process=1)))
    assert found == {(9, 1): ((1, 7), (2, 4))}


def test_of_a_process_the_newest_put_before_the_get_counts() -> None:
    puts = [put(number, start_ns) for number, start_ns in ((1, 1_000), (2, 2_000), (3, 9_000))]
    assert _links(named(*puts, get(1, 5_000))) == {(9, 1): ((1, 2),)}


def test_rows_join_and_not_batches() -> None:
    puts = [put(row + 1, 1_000, rows=range(row, row + 1)) for row in range(4)]
    found = _links([*named(*puts), RowsRecord(9, 1, 0, (0, 1, 2, 1)), *named(get(1, 5_000, rows=range(3)))])
    assert found == {(9, 1): ((1, 1), (1, 3))}


def test_another_partition_is_another_sample_whatever_its_number() -> None:
    other = NameRecord(2, 1, "validate")
    assert _links([*named(get(1, 5_000)), other, put(1, 1_000, process=2)]) == {}


def test_a_get_that_the_clocks_have_before_its_put_is_linked_to_it() -> None:
    assert _links(named(put(1, 1_000), get(1, 900))) == {(9, 1): ((1, 1),)}


def test_what_failed_made_nothing() -> None:
    assert _links(named(put(1, 1_000)._replace(error=2), get(1, 5_000))) == {}


def test_a_get_of_very_many_puts_keeps_the_newest() -> None:
    puts = [put(row + 1, 1_000 + row, rows=range(row, row + 1)) for row in range(MAX_LINKS + 10)]
    (links,) = _links(named(*puts, get(1, 50_000, rows=range(MAX_LINKS + 10)))).values()
    assert (len(links), links[0], links[-1]) == (MAX_LINKS, (1, 11), (1, MAX_LINKS + 10))


def test_an_index_that_is_used_again_is_another_sample() -> None:
    # The driver (1) puts twice, the rollout (2) once, until the sample is cleared; then again.
    first = [put(1, 1_000), put(1, 2_000, process=2), get(5, 2_500, process=2), put(2, 3_000), get(1, 4_000)]
    again = [put(3, 5_000), get(6, 6_000, process=2), put(2, 7_000, process=2), get(2, 8_000)]
    assert _links([*named(*first, *again), clear(4_500)]) == {
        (2, 5): ((1, 1), (2, 1)),
        (9, 1): ((1, 1), (2, 1), (1, 2)),
        (2, 6): ((1, 3),),
        (9, 2): ((1, 3), (2, 2)),
    }


def test_an_operation_without_rows_has_no_links() -> None:
    assert _links(named(put(1, 1_000), get(1, 5_000, rows=range(0)))) == {}
