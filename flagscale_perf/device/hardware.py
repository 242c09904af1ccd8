"""What a vendor's counters look like to the monitor, and which values of theirs are believed."""

from __future__ import annotations

from typing import ClassVar, Protocol

from flagscale_perf.training.hardware import POWER_MW
from flagscale_perf.training.records import HardwareRecord


class NoCountersError(Exception):
    """This reader cannot read this device; the text says why, in one phrase."""


class HardwareReader(Protocol):
    """One vendor's counters of one device. Used on one thread of the writer process only: any call may take
    long, or for ever.

    Attributes:
        name: for messages.
    """

    name: ClassVar[str]

    @classmethod
    def open(cls, device_uuid: str) -> HardwareReader:
        """Finds the device. Raises NoCountersError."""

    def read(self) -> HardwareRecord:
        """All counters now; None for each that is not to be had. Raises nothing."""


# What a value can be; anything else is a driver's "unknown" (2^32 - 1 ...), another unit, or noise.
_BELIEVED = {
    "power_mw": POWER_MW,
    "energy_mj": range(1, 1 << 53),
    "sm_clock_mhz": range(1, 10_001),
    "memory_clock_mhz": range(1, 20_001),
    "temperature_c": range(1, 151),
    "ecc_uncorrected": range(1 << 31),
    "xid": range(1 << 16),
    "pcie_generation": range(1, 10),
    "pcie_width": range(1, 33),
    "pcie_replays": range((1 << 32) - 1),
    "pcie_tx_bytes_per_s": range(10**12),
    "pcie_rx_bytes_per_s": range(10**12),
    "nvlinks_active": range(65),
    "nvlink_tx_bytes": range(1 << 62),
    "nvlink_rx_bytes": range(1 << 62),
    "memory_used_bytes": range(1, 1 << 45),
}


def believed(name: str, value: int) -> int | None:
    """The value of a field of `HardwareRecord` if it can be true, else None."""
    return value if value in _BELIEVED[name] else None
