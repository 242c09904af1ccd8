"""Operations and calls summed up, each with its weight."""

from flagscale_perf.spine.peers.records import NameRecord
from flagscale_perf.trace.records import Kind
from flagscale_perf.trace.sums import MAX_FUNCTIONS, OTHER_FUNCTIONS, TraceTotals
from tests.traced import ERROR, FUNCTION, call, operation


def test_an_operation_counts_as_often_as_its_weight_says_and_a_failed_one_moves_nothing() -> None:
    totals = TraceTotals()
    totals.add(operation(1, weight_milli=10_000))
    totals.add(operation(2, error=ERROR, size_bytes=None))
    gets = totals.operations[Kind.GET]
    assert (gets.total.count, gets.total.weight, gets.total.total) == (2, 11, 660_000_000)
    assert (sum(gets.errors.values()), gets.rows.total, gets.size.total) == (1, 640, 159_383_550)
    assert {name: took_ns for name, took_ns, _ in gets.waterfall()} == {
        "unit": 400_000_000,
        "decode": 100_000_000,
        "pack": 50_000_000,
        "other": 50_000_000,
    }


def test_calls_are_summed_by_the_name_of_their_function() -> None:
    totals = TraceTotals()
    for process in (1, 2):
        totals.add(NameRecord(process, FUNCTION, "rollout"))
        totals.add(call(1, process=process))
    totals.add(call(2, process=1, function=99, put_ns=None, error=ERROR))
    assert {name: each.total.count for name, each in totals.functions.items()} == {"rollout": 2, "N/A": 1}
    assert totals.functions["rollout"].parts() == (104_000_000, 1_600_000_000, 124_048_000)
    assert sum(totals.functions["N/A"].errors.values()) == 1


def test_the_functions_told_apart_are_bounded() -> None:
    totals = TraceTotals()
    for number in range(MAX_FUNCTIONS + 5):
        totals.add(NameRecord(1, number, f"f{number}"))
        totals.add(call(number, process=1, function=number))
    assert len(totals.functions) == MAX_FUNCTIONS + 1
    assert totals.functions[OTHER_FUNCTIONS].total.count == 5
