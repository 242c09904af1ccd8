"""Calls in columns."""

from __future__ import annotations

from flagscale_perf.rpc.analysis.columns import BATCH, batches, call_at, columns_of
from tests.rpc_sessions import make_call


def test_a_batch_has_a_column_for_each_field_and_gives_the_calls_back() -> None:
    calls = [make_call(1), make_call(2, server_ns=None)]
    columns = columns_of(calls)
    assert (columns["number"], columns["server_ns"]) == ((1, 2), (1_400_000, None))
    assert [call_at(columns, place) for place in (0, 1)] == calls


def test_fractions_of_a_log_are_rounded() -> None:
    columns = columns_of([make_call(1)._replace(sent_bytes=128348.16)])  # type: ignore[arg-type]
    assert call_at(columns, 0).sent_bytes == 128348


def test_there_are_as_many_batches_as_needed() -> None:
    calls = [make_call(number) for number in range(1, BATCH + 2)]
    assert [len(batch["number"]) for batch in batches(calls)] == [BATCH, 1]
    assert list(batches([])) == []
