"""A device's hardware counters: the record of one reading, and which values are plausible."""

from __future__ import annotations

from dataclasses import dataclass

from flagscale_perf.spine.records import record

POWER_MW = range(1_000, 5_000_001)  # of one device; excludes a counter in watts and a driver's 2^32 - 1


@record("hardware", start="at_ns")
@dataclass(frozen=True)
class HardwareRecord:
    """One reading of a device, about once a second. None for what the device, driver or library lacks.

    Attributes:
        at_ns: monotonic mark.
        power_mw: drawn now.
        energy_mj: counter since the driver was loaded.
        sm_clock_mhz: now.
        throttle: why the clocks are not higher, names of `training.hardware.REASONS` joined by ", "; "" for
            no reason.
        temperature_c: of the chip.
        ecc_uncorrected: memory errors that could not be corrected, counted since the last reset.
        xid: number of a critical error the driver has reported since the last reading; 0 for none.
        pcie_generation, pcie_width: of the link now.
        pcie_replays: counter of packets sent again.
        nvlinks_active: number of links that are up.
        tensor_ppm: part of tensor_ns, in millionths, in which the tensor cores were active, all SMs together.
        tensor_ns: up to this reading, since the last one.
        processes: with a compute context on the device; None where they are hidden, as in a container.
    """

    at_ns: int
    power_mw: int | None = None
    energy_mj: int | None = None
    sm_clock_mhz: int | None = None
    throttle: str | None = None
    temperature_c: int | None = None
    ecc_uncorrected: int | None = None
    xid: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    pcie_replays: int | None = None
    nvlinks_active: int | None = None
    tensor_ppm: int | None = None
    tensor_ns: int | None = None
    processes: int | None = None


class NoCountersError(Exception):
    """This reader cannot read this device; the text is the reason, in one phrase."""


# Anything else is a driver's "unknown" (2^32 - 1 ...), another unit, or noise.
_PLAUSIBLE = {
    "power_mw": POWER_MW,
    "energy_mj": range(1, 1 << 53),
    "sm_clock_mhz": range(1, 10_001),
    "temperature_c": range(1, 151),
    "ecc_uncorrected": range(1 << 31),
    "xid": range(1 << 16),
    "pcie_generation": range(1, 10),
    "pcie_width": range(1, 33),
    "pcie_replays": range((1 << 32) - 1),
    "nvlinks_active": range(65),
    "processes": range(1, 1 << 16),
}


def plausible(name: str, value: int) -> int | None:
    """The value of a field of `HardwareRecord` if it is possible, otherwise None."""
    return value if value in _PLAUSIBLE[name] else None
