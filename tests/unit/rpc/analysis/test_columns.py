"""Calls are held in columns, which give them back as they were."""

from __future__ import annotations

from array import array
from operator import add

import pytest

from flagscale_perf.rpc.analysis.columns import added, call_at, calls_in, known, largest, least, total
from tests.rpc_sessions import columns_of, make_call


def test_a_batch_has_a_column_for_each_field_and_gives_the_calls_back() -> None:
    calls = [make_call(1), make_call(2, server_ns=None)]
    columns = columns_of(calls)
    assert (columns["number"], columns["server_ns"]) == ((1, 2), (1_400_000, None))
    assert [call_at(columns, place) for place in (0, 1)] == calls


def test_fractions_of_a_log_are_rounded() -> None:
    columns = columns_of([make_call(1)._replace(sent_bytes=128348.16)])  # type: ignore[arg-type]
    assert call_at(columns, 0).sent_bytes == 128348


def test_what_some_calls_of_a_log_do_not_tell_stays_unknown() -> None:
    columns = columns_of([make_call(1)._replace(server_ns=1.6), make_call(2, server_ns=None)])  # type: ignore[arg-type]
    assert [call.server_ns for call in calls_in(columns, 0, 2)] == [2, None]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([3, 1, 2], [0, 5, 9]),
        ([-(1 << 63), 5], [-1, 7]),
        ([(1 << 63) - 1, (1 << 63) - 1], [(1 << 63) - 1, 1]),  # neither a sum of 64 bits nor a pair's
    ],
)
def test_an_array_has_the_figures_of_a_list(one: list[int], other: list[int]) -> None:
    arrays = array("q", one), array("q", other)
    assert (total(arrays[0]), largest(arrays[0]), least(arrays[0])) == (sum(one), max(one), min(one))
    assert [*added(*arrays)] == [*added(one, other)] == [*map(add, one, other)]
    assert (known(arrays[0]), known([*one, None])) == (len(one), len(one))
