"""Calls are held in columns, which give them back as they were."""

from __future__ import annotations

from typing import Any

from flagscale_perf.rpc.analysis.columns import BATCH, Gathering, call_at
from tests.rpc_sessions import columns_of, make_call


def test_a_batch_has_a_column_for_each_field_and_gives_the_calls_back() -> None:
    calls = [make_call(1), make_call(2, server_ns=None)]
    columns = columns_of(calls)
    assert (columns["number"], columns["server_ns"]) == ((1, 2), (1_400_000, None))
    assert [call_at(columns, place) for place in (0, 1)] == calls


def test_fractions_of_a_log_are_rounded() -> None:
    columns = columns_of([make_call(1)._replace(sent_bytes=128348.16)])  # type: ignore[arg-type]
    assert call_at(columns, 0).sent_bytes == 128348


def test_short_stretches_are_gathered_and_a_long_one_stays_as_it_is() -> None:
    def stretch(first: int, count: int) -> list[list[Any]]:
        return [list(values) for values in columns_of([make_call(first + n) for n in range(count)]).values()]

    long = stretch(1, BATCH)
    found = list(
        Gathering().batches(
            [long, stretch(BATCH + 1, 3), stretch(BATCH + 4, BATCH), stretch(2 * BATCH + 4, 1)]
        )
    )
    assert found[0]["number"] is long[0]
    assert [len(columns["number"]) for columns in found] == [BATCH, BATCH + 3, 1]
    assert [number for columns in found for number in columns["number"]] == [*range(1, 2 * BATCH + 5)]
    assert list(Gathering().batches([])) == []
