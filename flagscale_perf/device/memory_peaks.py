"""Memory size and bandwidth of known chips: the counterpart of the peak FLOP/s in a roofline.

Names are matched whole, as in `peaks`. A chip whose makers' figures are not public has no row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from flagscale_perf.device.peaks import is_known, known_names, near_names
from flagscale_perf.spine.errors import PerfError

_GB = 10**9
_SIZE = re.compile(r"(\d+)\s?gb")


@dataclass(frozen=True)
class Memory:
    """The memory of one device.

    Attributes:
        bytes_per_s: by its datasheet.
        size_bytes: None where the name does not say which size it is.
        source: one line.
    """

    bytes_per_s: float
    size_bytes: int | None
    source: str


@dataclass(frozen=True)
class MemoryRow:
    """One chip, or several with the same memory.

    Attributes:
        pattern: regular expression of the driver's whole name for it, in any case.
        gb_per_s: decimal, both directions together.
        gb: that it has; None: its name says so.
        source: where the figures are from.
    """

    pattern: str
    gb_per_s: float
    gb: int | None
    source: str


_VOLTA, _AMPERE, _HOPPER, _BLACKWELL = (
    f"NVIDIA's {name} datasheet" for name in ("Volta", "A100", "Hopper", "Blackwell")
)
ROWS = (
    MemoryRow(r"(tesla|nvidia) v100-(sxm2|pcie)-\d+gb", 900, None, _VOLTA),
    MemoryRow(r"(tesla|nvidia) v100s-pcie-\d+gb", 1134, None, _VOLTA),
    MemoryRow(r"nvidia a100-(sxm4|sxm|pcie|pg509)-40gb", 1555, None, _AMPERE),
    MemoryRow(r"nvidia a[18]00-(sxm4|sxm)-80gb", 2039, None, _AMPERE),
    MemoryRow(r"nvidia a[18]00 80gb pcie", 1935, None, _AMPERE),
    MemoryRow(r"nvidia h100 80gb hbm3", 3350, None, _HOPPER),
    MemoryRow(r"nvidia h100 pcie", 2000, 80, _HOPPER),
    MemoryRow(r"nvidia h100 nvl", 3900, 94, _HOPPER),
    MemoryRow(r"nvidia h200", 4800, 141, _HOPPER),
    MemoryRow(r"nvidia g?b200", 8000, None, _BLACKWELL + "; which size depends on the system"),
    MemoryRow(r"nvidia l40s", 864, 48, "NVIDIA's L40S datasheet"),
    MemoryRow(r"nvidia geforce rtx 4090", 1008, 24, "NVIDIA's page of the card"),
)


def memory_of(device_name: str) -> Memory | None:
    """The memory of the device with this driver name; None if unknown."""
    name = " ".join(device_name.lower().split())
    row = next((row for row in ROWS if re.fullmatch(row.pattern, name)), None)
    if row is None:
        return None
    said = _SIZE.search(name)
    gigabytes = row.gb or (int(said[1]) if said else None)
    return Memory(row.gb_per_s * _GB, None if gigabytes is None else gigabytes * _GB, row.source)


def whole_name(device: str) -> str:
    """The driver's full name for a part of it, such as "H200". Raises PerfError if none or several match."""
    if is_known(device):
        return device
    words = set(re.split(r"[^a-z0-9]+", device.lower()))
    meant = [name for name in known_names() if words <= set(re.split(r"[^a-z0-9]+", name.lower()))]
    if len(meant) == 1:
        return meant[0]
    names = ", ".join(f"{name!r}" for name in meant or near_names(device) or known_names())
    problem = "several are called so" if meant else "it is not in the table"
    raise PerfError(f"--device {device!r}: {problem}; write one of {names}")
