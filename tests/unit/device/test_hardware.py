"""Which values of a counter are believed."""

from __future__ import annotations

from dataclasses import fields

import pytest

from flagscale_perf.device.hardware import believed
from flagscale_perf.training.records import HardwareRecord


@pytest.mark.parametrize(
    "name", [f.name for f in fields(HardwareRecord) if f.name not in ("at_ns", "throttle")]
)
def test_the_unknowns_of_drivers_are_never_believed(name: str) -> None:
    unknown = [2**64 - 1, -1] if name == "energy_mj" or "bytes" in name else [2**32 - 1, 2**64 - 1, -1]
    assert [believed(name, value) for value in unknown] == [None] * len(unknown)


@pytest.mark.parametrize(
    ("name", "value", "other_unit"),
    [
        ("power_mw", 700_000, 700),
        ("sm_clock_mhz", 1980, 1_980_000),
        ("temperature_c", 85, 333),
        ("pcie_width", 16, 160),
    ],
)
def test_a_value_is_believed_in_its_own_unit_only(name: str, value: int, other_unit: int) -> None:
    assert (believed(name, value), believed(name, other_unit)) == (value, None)
