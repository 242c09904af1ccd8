"""Fragmentation, and the forecast of an end of memory: from straight lines, jumps and flat ones."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.memory import MIN_READINGS, MemoryTotals, fragmentation
from tests.fakes import make_step

GB = 10**9


def totals_of(peaks, device_bytes=100 * GB, every=10):
    totals = MemoryTotals(RunFacts.of({"device_memory_bytes": device_bytes}))
    for number, peak in enumerate(peaks, start=1):
        totals.add(make_step(number * every, memory_peak_bytes=peak))
    return totals


def test_a_steady_growth_is_drawn_on_to_the_devices_end() -> None:
    # 1 GB in 10 steps, at 20 GB now: 80 GB are left
    assert totals_of([GB * n for n in range(1, 21)]).steps_left() == 800


@pytest.mark.parametrize(
    "peaks",
    [
        [50 * GB] * 20,
        [GB * n for n in range(1, 6)] + [5 * GB] * 15,
        [50 * GB] * 19 + [90 * GB],
        [60 * GB - GB * n for n in range(20)],
        [GB * n for n in range(1, MIN_READINGS)],
    ],
    ids=["flat", "grown at first", "one jump", "falling", "too few"],
)
def test_what_does_not_go_on_growing_has_no_end(peaks) -> None:
    assert totals_of(peaks).steps_left() is None


def test_one_jump_does_not_bend_the_trend() -> None:
    # without the 30 GB of one reading it would be 800
    assert totals_of([GB * n + 30 * GB * (n == 7) for n in range(1, 21)]).steps_left() == 800


def test_an_end_that_is_reached_is_zero_steps_away_and_one_beyond_all_runs_is_none() -> None:
    assert totals_of([GB * n for n in range(1, 21)], device_bytes=15 * GB).steps_left() == 0
    assert totals_of([GB + n for n in range(20)]).steps_left() is None
    assert totals_of([GB * n for n in range(1, 21)], device_bytes=None).steps_left() is None


def test_only_the_last_readings_count() -> None:
    assert totals_of([GB * n for n in range(1, 40)] + [39 * GB] * 32).steps_left() is None


def test_the_block_of_the_summary() -> None:
    totals = totals_of([3 * GB], device_bytes=80 * GB)
    totals.add(make_step(20, memory_bytes=3 * GB, memory_reserved_bytes=12 * GB, memory_retries=2))
    totals.add(make_step(30, memory_bytes=6 * GB, memory_reserved_bytes=8 * GB, memory_retries=5))
    totals.add(make_step(40, memory_peak_bytes=None, memory_bytes=None))
    assert asdict(totals.result()) == {
        "device_gb": 80.0,
        "reserved_peak_gb": 12.0,
        "fragmentation": 0.25,
        "alloc_retries": 5,
        "out_of_memory_in_steps": None,
    }


@pytest.mark.parametrize("size", [None, 0, -1, 10**400, "80 GB", 8e10])
def test_a_size_that_is_none_is_not_known(size) -> None:
    assert set(asdict(MemoryTotals(RunFacts.of({"device_memory_bytes": size})).result()).values()) == {None}


@pytest.mark.parametrize(("allocated", "reserved"), [(None, 4), (3, None), (0, 0), (5, 4), (-1, 4)])
def test_a_share_of_nothing_or_of_nonsense_is_not_known(allocated, reserved) -> None:
    assert fragmentation(allocated, reserved) is None
