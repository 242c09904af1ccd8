"""Which values of a counter are plausible, and readings in files of earlier versions."""

from __future__ import annotations

from dataclasses import fields

import pytest

from flagscale_perf.device.counters import HardwareRecord, plausible
from flagscale_perf.store.decoder import decode

NOT_OF_THE_DRIVER = ("at_ns", "throttle", "tensor_ppm", "tensor_ns")


@pytest.mark.parametrize("name", [f.name for f in fields(HardwareRecord) if f.name not in NOT_OF_THE_DRIVER])
def test_the_unknowns_of_drivers_are_never_plausible(name: str) -> None:
    unknown = [2**64 - 1, -1] if name == "energy_mj" else [2**32 - 1, 2**64 - 1, -1]
    assert [plausible(name, value) for value in unknown] == [None] * len(unknown)


@pytest.mark.parametrize(
    ("name", "value", "other_unit"),
    [
        ("power_mw", 700_000, 700),
        ("sm_clock_mhz", 1980, 1_980_000),
        ("temperature_c", 85, 333),
        ("pcie_width", 16, 160),
    ],
)
def test_a_value_is_plausible_in_its_own_unit_only(name: str, value: int, other_unit: int) -> None:
    assert (plausible(name, value), plausible(name, other_unit)) == (value, None)


def test_readings_of_earlier_versions_had_counters_that_nobody_used() -> None:
    line = b'{"kind":"hardware","at_ns":7,"sm_clock_mhz":1980,"memory_clock_mhz":3201,"nvlink_tx_bytes":5}\n'
    assert decode(line) == HardwareRecord(7, sm_clock_mhz=1980)
