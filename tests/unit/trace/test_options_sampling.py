"""Sampling decides by the trace id, alike in every process, and keeps the share that was asked for."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.trace.options import Sampling, TraceOptions


def sampling(every: int = 1, ratio: float = 1.0) -> Sampling:
    return Sampling.of(
        TraceOptions(trace=True, detail=True, directory=Path("unused"), every=every, ratio=ratio)
    )


def test_everything_is_kept_unless_something_else_is_said() -> None:
    assert sampling() == Sampling(1000, 2**64)
    assert sampling().keeps_all


def test_a_ratio_and_every_nth_of_it_are_one_share() -> None:
    assert sampling(every=5, ratio=0.5) == Sampling(10_000, int(0.1 * 2**64))


def test_trace_ids_are_spread_evenly() -> None:
    half = sampling(ratio=0.5)
    kept = sum(half.keeps(f"{n:08x}", "", None) for n in range(1000))
    assert 450 < kept < 550  # the same number each time: nothing here is random


def test_a_batch_without_an_id_is_decided_on_by_where_it_lies() -> None:
    tenth = sampling(every=10)
    kept = [row for row in range(0, 64_000, 64) if tenth.keeps("", "train", row)]
    assert 70 < len(kept) < 130
    assert kept == [row for row in range(0, 64_000, 64) if tenth.keeps("", "train", row)]
    assert kept != [row for row in range(0, 64_000, 64) if tenth.keeps("", "valid", row)]
