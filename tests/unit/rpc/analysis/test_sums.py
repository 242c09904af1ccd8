"""Batches of calls folded."""

from __future__ import annotations

from operator import add

from flagscale_perf.rpc.analysis.sums import SAMPLE, Sample, Tops, add_batch
from flagscale_perf.rpc.totals import CallTotals
from flagscale_perf.store import state
from tests.rpc_sessions import columns_of, make_call


def test_a_batch_adds_what_its_calls_add_one_by_one() -> None:
    calls = [
        make_call(1),
        make_call(2, method="Matmul", status=4, server_ns=None),
        make_call(3, queue_ns=None),
    ]
    by_batch, one_by_one = CallTotals(), CallTotals()
    add_batch(by_batch, columns_of(calls))
    for call in calls:
        one_by_one.add(call)
    assert vars(by_batch.overall) == vars(one_by_one.overall)
    assert {name: vars(one) for name, one in by_batch.methods.items()} == {
        name: vars(one) for name, one in one_by_one.methods.items()
    }


def test_a_sample_of_few_is_all_and_of_many_an_even_choice() -> None:
    sample, few = Sample(), [make_call(number) for number in range(1, 11)]
    sample.add(columns_of(few))
    assert sample.calls == few
    count = 20 * SAMPLE
    for first in range(11, count + 1, 1000):
        sample.add(columns_of([make_call(n) for n in range(first, min(first + 1000, count + 1))]))
    numbers = [call.number for call in sample.calls]
    assert len(numbers) == len(set(numbers)) == SAMPLE
    assert abs(sum(numbers) / SAMPLE / count - 0.5) < 0.02
    assert sum(number > count // 2 for number in numbers) > 0.45 * SAMPLE


def test_a_sample_is_the_same_whatever_the_batches_and_where_it_was_kept() -> None:
    calls = [make_call(number) for number in range(1, 8 * SAMPLE)]
    whole, cut = Sample(), Sample()
    whole.add(columns_of(calls))
    for first in range(0, len(calls), 700):
        cut.add(columns_of(calls[first : first + 700]))
        text, cut = state.text_of(cut), Sample()
        state.made(text, cut)
    assert cut.calls == whole.calls


def test_the_top_ones_are_the_earlier_of_equal_ones() -> None:
    tops = Tops()
    for numbers in ((1, 2, 3, 4), (5, 6, 7, 8)):
        columns = columns_of([make_call(n, total_ns={2: 9, 7: 11}.get(n, 5)) for n in numbers])
        tops.add(columns, columns["total_ns"])
    assert [call.number for call in tops.calls()] == [7, 2, 1, 3, 4]


def test_a_call_as_large_as_the_last_top_one_comes_in_only_if_it_is_earlier() -> None:
    tops = Tops()
    for numbers in ((11, 12, 13, 14, 15), (20, 21), (9, 16), (22,)):
        columns = columns_of([make_call(n, total_ns=6 if n == 22 else 5) for n in numbers])
        tops.add(columns, columns["total_ns"])
    assert [call.number for call in tops.calls()] == [22, 9, 11, 12, 13]


def test_the_largest_are_by_what_goes_both_ways() -> None:
    tops, columns = Tops(), columns_of([make_call(1), make_call(2, received_bytes=9 << 20)])
    tops.add(columns, list(map(add, columns["sent_bytes"], columns["received_bytes"])))
    assert [call.number for call in tops.calls()] == [2, 1]
