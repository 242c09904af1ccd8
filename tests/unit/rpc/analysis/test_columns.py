"""Calls are held in columns, which give them back as they were."""

from __future__ import annotations

from flagscale_perf.rpc.analysis.columns import call_at
from tests.rpc_sessions import columns_of, make_call


def test_a_batch_has_a_column_for_each_field_and_gives_the_calls_back() -> None:
    calls = [make_call(1), make_call(2, server_ns=None)]
    columns = columns_of(calls)
    assert (columns["number"], columns["server_ns"]) == ((1, 2), (1_400_000, None))
    assert [call_at(columns, place) for place in (0, 1)] == calls


def test_fractions_of_a_log_are_rounded() -> None:
    columns = columns_of([make_call(1)._replace(sent_bytes=128348.16)])  # type: ignore[arg-type]
    assert call_at(columns, 0).sent_bytes == 128348
