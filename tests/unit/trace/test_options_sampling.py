"""Sampling decides by the trace id, alike in every process, and keeps the share that was asked for."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from flagscale_perf.trace.options import Sampling, TraceOptions, position


def sampling(every: int = 1, ratio: float = 1.0) -> Sampling:
    return Sampling.of(
        TraceOptions(trace=True, detail=True, directory=Path("unused"), every=every, ratio=ratio)
    )


def test_everything_is_kept_unless_something_else_is_said() -> None:
    assert sampling() == Sampling(1000, 2**64)
    assert sampling().keeps_all


def test_a_ratio_and_every_nth_of_it_are_one_share() -> None:
    assert sampling(every=5, ratio=0.5) == Sampling(10_000, int(0.1 * 2**64))


@pytest.mark.parametrize(
    ("trace_id", "is_kept"),
    [
        ("ffffffffffffffff" + "0000000000000000", True),
        ("00000000000000007fffffffffffffff", True),
        ("00000000000000008000000000000000", False),
    ],
)
def test_a_trace_id_of_opentelemetry_is_decided_on_by_its_low_64_bits(trace_id, is_kept) -> None:
    assert sampling(ratio=0.5).keeps(trace_id, "train", 0) is is_kept


@pytest.mark.parametrize("low", [0, 1, 2**61, 2**62 - 1])
def test_of_a_random_uuid_the_fixed_bits_do_not_count(low) -> None:
    uuid = UUID(int=(0x4 << 76) | (0b10 << 62) | low)
    assert position(str(uuid)) == position(uuid.hex) == low << 2


def test_every_other_text_is_spread_evenly() -> None:
    half = sampling(ratio=0.5)
    kept = sum(half.keeps(f"{n:08x}", "", None) for n in range(1000))
    assert 450 < kept < 550  # the same number each time: nothing here is random


def test_a_batch_without_an_id_is_decided_on_by_where_it_lies() -> None:
    tenth = sampling(every=10)
    kept = [row for row in range(0, 64_000, 64) if tenth.keeps("", "train", row)]
    assert 70 < len(kept) < 130
    assert kept == [row for row in range(0, 64_000, 64) if tenth.keeps("", "train", row)]
    assert kept != [row for row in range(0, 64_000, 64) if tenth.keeps("", "valid", row)]
