"""Operations and calls summed up, each with its weight."""

import pytest

from flagscale_perf.spine.peers.records import NameRecord
from flagscale_perf.trace.records import Kind
from flagscale_perf.trace.totals import MAX_FUNCTIONS, OTHER_FUNCTIONS, Histogram, TraceTotals
from tests.traced import ERROR, FUNCTION, call, operation


def test_an_operation_counts_as_often_as_its_weight_says() -> None:
    totals = TraceTotals()
    totals.add(operation(1))
    totals.add(operation(2, weight_milli=10_000, error=ERROR, size_bytes=None))
    gets = totals.operations[Kind.GET]
    assert (gets.recorded, gets.count, gets.failed, gets.rows) == (2, 11, 10, 704)
    assert (gets.total_ns, gets.size_bytes) == (660_000_000, 15_938_355)
    assert gets.stages_ns == {
        "unit": 440_000_000,
        "decode": 110_000_000,
        "pack": 55_000_000,
        "other": 55_000_000,
    }


def test_calls_are_summed_by_the_name_of_their_function() -> None:
    totals = TraceTotals()
    for process in (1, 2):
        totals.add(NameRecord(process, FUNCTION, "rollout"))
        totals.add(call(1, process=process))
    totals.add(call(2, process=1, function=99, put_ns=None, error=ERROR))
    assert {name: each.count for name, each in totals.functions.items()} == {"rollout": 2, "N/A": 1}
    assert totals.functions["rollout"].stages() == {
        "get": 104_000_000,
        "compute": 1_600_000_000,
        "put": 124_048_000,
    }
    assert totals.functions["N/A"].failed == 1


def test_the_functions_told_apart_are_bounded() -> None:
    totals = TraceTotals()
    for number in range(MAX_FUNCTIONS + 5):
        totals.add(NameRecord(1, number, f"f{number}"))
        totals.add(call(number, process=1, function=number))
    assert len(totals.functions) == MAX_FUNCTIONS + 1
    assert totals.functions[OTHER_FUNCTIONS].count == 5


def test_a_histogram_knows_quantiles_and_what_lies_below_a_bound() -> None:
    histogram = Histogram()
    assert histogram.quantile(0.5) is None
    for milliseconds in (1, 2, 4, 8):
        histogram.add(milliseconds * 1_000_000, 25)
    assert histogram.quantile(0.5) == pytest.approx(0.002, rel=0.05)
    assert histogram.quantile(0.99) == pytest.approx(0.008, rel=0.05)
    assert histogram.below([0.003, 1.0]) == [50, 100, 100]
