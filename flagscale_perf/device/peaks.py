"""Dense peak FLOP/s of known chips: the denominator of MFU. Never a sparse figure, never a similar chip's.

Each row has its source and how far it is trusted: A where independent tables that cite the vendor's datasheet
agree, B for one solid source, C where sources are weak or contradict each other; C gives no peak, only the
reason. Names are matched whole, as the driver reports them, because chips of similar names differ: H100 PCIe
and H100 SXM, GH200 and H200, an A100 and a MIG slice of it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from flagscale_perf.options.peak import NamedPeak, PeakOption
from flagscale_perf.spine.errors import PerfError

OPTION = "--perf-peak-tflops"
HINT = "set --perf-peak-tflops to the dense peak of one device to get MFU"
_TERA = 1e12


@dataclass(frozen=True)
class Peak:
    """The highest rates that one device can reach.

    Attributes:
        flop_per_s: dense peak; None if it is not known well enough.
        source: one line: where the peak is from, or why there is none and how to set it.
    """

    flop_per_s: float | None
    source: str


@dataclass(frozen=True)
class PeakRow:
    """One chip.

    Attributes:
        pattern: regular expression of the driver's whole name for it, in any case.
        chip: its name in messages.
        trust: "A", "B" or "C".
        source: where the figures are from, or what is wrong with them.
        half: dense TFLOP/s in bf16 and fp16; None if not known well enough.
        fp8: dense TFLOP/s in fp8; None if it has none or it is not known well enough.
        dtypes: what `half` holds for.
        flop_per_clock: dense FLOP of all tensor cores in one clock of the SMs, in `dtypes`; None if not known
            well enough.
    """

    pattern: str
    chip: str
    trust: str
    source: str
    half: float | None = None
    fp8: float | None = None
    dtypes: tuple[str, ...] = ("bf16", "fp16")
    flop_per_clock: int | None = None


_HOPPER = "NVIDIA's Hopper datasheet as cited by torchtitan, composer and Lightning"
_BLACKWELL = "NVIDIA's Blackwell datasheet (sparse figure halved) as cited by torchtitan and verl"
# SMs x FLOP of an SM in a clock: 4096 on Hopper by NVIDIA's whitepaper (twice Ampere's 2048), 8192 on
# Blackwell by VeOmni. The peaks divided by them are the clocks that those are stated at: 1830 MHz for H100
# SXM and H200, 1620 for H100 PCIe, as in the whitepaper, 1545 for H100 NVL, 1856 for B200; devices may run
# faster. Not known: H20, whose tensor cores are held back in no public way, and GB200 (148 or 152 SMs).
_H100, _H100_PCIE, _B200 = 132 * 4096, 114 * 4096, 148 * 8192
_VOLTA = "NVIDIA's Volta datasheet as cited by composer and Lightning"
_AMPERE = "NVIDIA's A100 datasheet as cited by torchtitan, verl, composer and Lightning"

ROWS = (
    PeakRow(r"(tesla|nvidia) v100-sxm2-\d+gb", "V100 SXM2", "A", _VOLTA, 125, dtypes=("fp16",)),
    PeakRow(r"(tesla|nvidia) v100-pcie-\d+gb", "V100 PCIe", "A", _VOLTA, 112, dtypes=("fp16",)),
    PeakRow(r"(tesla|nvidia) v100s-pcie-\d+gb", "V100S", "A", _VOLTA, 130, dtypes=("fp16",)),
    PeakRow(r"nvidia a100-(sxm4|sxm|pcie|pg509)-\d+gb|nvidia a100 \d+gb pcie", "A100", "A", _AMPERE, 312),
    PeakRow(r"nvidia a800-sxm4-\d+gb|nvidia a800 \d+gb pcie", "A800", "A", _AMPERE + "; same die", 312),
    PeakRow(r"nvidia h100 80gb hbm3", "H100 SXM", "A", _HOPPER, 989.4, 1979, flop_per_clock=_H100),
    PeakRow(r"nvidia h100 pcie", "H100 PCIe", "A", _HOPPER, 756, 1513, flop_per_clock=_H100_PCIE),
    PeakRow(r"nvidia h100 nvl", "H100 NVL", "A", _HOPPER, 835, 1671, flop_per_clock=_H100),
    PeakRow(
        r"nvidia h800", "H800 SXM", "B", "verl: H100, half its NVLink", 989.4, 1979, flop_per_clock=_H100
    ),
    PeakRow(r"nvidia h20", "H20", "A", "torchtitan and verl; fp8 is twice bf16 by design", 148, 296),
    PeakRow(r"nvidia h200", "H200 SXM", "A", _HOPPER, 989.4, 1979, flop_per_clock=_H100),
    PeakRow(r"nvidia b200", "B200", "A", _BLACKWELL, 2250, 4500, flop_per_clock=_B200),
    PeakRow(r"nvidia gb200", "GB200, one GPU", "A", _BLACKWELL, 2500, 5000),
    PeakRow(r"nvidia l40s", "L40S", "A", "torchtitan and verl; for fp8 they differ (724 and 733)", 362),
    PeakRow(
        r"nvidia geforce rtx 4090", "RTX 4090", "B", "nanochat issue 60, accumulating in fp32", 165.2, 330
    ),
    PeakRow(
        r"(iluvatar )?bi-v150",
        "Iluvatar BI-V150",
        "B",
        "FlagPerf's specification, which its own 196.8 measured in bf16 exceed",
        192,
    ),
    PeakRow(
        r"(kunlunxin )?r300",
        "Kunlunxin R300",
        "B",
        "FlagPerf: eight of them are 1 PFLOP/s in fp16",
        128,
        dtypes=("fp16",),
    ),
    PeakRow(r"(moore threads )?mtt s4000", "MTT S4000", "B", "press reports of its launch", 100),
    PeakRow(
        r"(metax )?(mx)?c500 pcie", "MetaX C500 PCIe", "B", "llm-cal; a public tender gives 240.2 a card", 240
    ),
    PeakRow(
        r"(metax )?(mx)?c5[05]0.*",
        "MetaX C500/C550",
        "C",
        "240 or 280 TFLOP/s, by form factor, which the name does not show",
    ),
    PeakRow(
        r"ascend ?910b\d?.*",
        "Ascend 910B",
        "C",
        "public figures for its variants run from 256 to 414 TFLOP/s",
    ),
    PeakRow(r"ascend ?910(c|_93).*", "Ascend 910C", "C", "780 TFLOP/s for two dies, from one weak source"),
    PeakRow(r"(kunlunxin )?(p800|r310p).*", "Kunlunxin P800/R310p", "C", "only press reports"),
    PeakRow(r"(hygon )?(k100[_ ]ai|bw\d+).*|gfx936", "Hygon K100_AI/BW", "C", "only a third party's table"),
    PeakRow(r"(cambricon )?mlu590.*", "Cambricon MLU590", "C", "no credible figure is public"),
    PeakRow(r"(moore threads )?mtt s5000", "MTT S5000", "C", "only press reports, and they differ"),
)


def is_known(device_name: str) -> bool:
    """Whether the table has the chip, with a figure or without."""
    return _row_of(device_name) is not None


def _row_of(device_name: str) -> PeakRow | None:
    name = " ".join(device_name.lower().split())
    return next((row for row in ROWS if re.fullmatch(row.pattern, name)), None)


def near_names(device_name: str) -> list[str]:
    """The known names nearest to one that is not known: those with the same model number, or else that look
    alike; none where none does.
    """
    names = known_names()
    words = re.split(r"[^a-z0-9]+", device_name.lower())
    numbers = [word for word in words if re.search(r"\d\d", word)]
    alike = [name for name in names if any(word in name.lower() for word in numbers)]
    return alike or difflib.get_close_matches(device_name.upper(), names)


def known_names() -> list[str]:
    """A name of every chip of the table, as a driver reports it."""
    return [_example_of(row) for row in ROWS]


def _example_of(row: PeakRow) -> str:
    """A name that the row's pattern matches: the first of alternatives, without what may be left out."""
    name = re.sub(r"\([^()]*\)\?|\\d\?|.\?|\.\*", "", row.pattern)
    name = re.sub(r"\[(.)[^]]*\]", r"\1", re.sub(r"\(([^()|]*)[^()]*\)", r"\1", name)).split("|")[0]
    return name.replace(r"\d+", "80").strip().upper()


def peak_in_force(given: PeakOption | None, device_name: str, dtype: str) -> Peak:
    """The user's figure for this device if there is one, else the table's. Arguments as for `find_peak`."""
    if given is None:
        return find_peak(device_name, dtype)
    try:
        tflops = given.tflops_of(device_name)
    except PerfError as error:
        return Peak(None, f"{OPTION}: {error}")
    if tflops is None:
        return find_peak(device_name, dtype)
    return Peak(tflops * _TERA, OPTION)


def mean_peak(given: PeakOption | None, ranks: Mapping[str, int], world_size: int) -> Peak:
    """Mean peak of a job's devices where they differ, from the user's figures alone.

    The built-in table is of no use: the host's name of a type is not the driver's name of a device.

    Args:
        given: the option.
        ranks: type of device -> how many ranks have one.
        world_size: of the job.
    """
    cure = f"set {OPTION} {','.join(f'{name}=TFLOPS' for name in ranks)}"
    if sum(ranks.values()) != world_size:
        return Peak(
            None, f"devices differ, and {sum(ranks.values())} of {world_size} ranks say which they have"
        )
    if given is None or not given.named:
        return Peak(None, f"devices differ and each type needs its peak: {cure}")
    parts: list[tuple[NamedPeak, int]] = []
    for name, count in ranks.items():
        try:
            tflops = given.tflops_of(name)
        except PerfError as error:
            return Peak(None, f"{OPTION}: {error}")
        if tflops is None:
            return Peak(None, f"devices differ and {OPTION} has no peak for {name!r}: {cure}")
        parts.append((NamedPeak(name, tflops), count))
    mean = sum(peak.tflops * count for peak, count in parts) / world_size
    return Peak(
        mean * _TERA, f"{OPTION}, mean over {' and '.join(f'{count} x {peak}' for peak, count in parts)}"
    )


def find_peak(device_name: str, dtype: str) -> Peak:
    """Dense peak of one device.

    Args:
        device_name: as the driver reports it, e.g. "NVIDIA H100 80GB HBM3".
        dtype: "bf16", "fp16", "fp8" or "fp32".
    """
    row = _row_of(device_name)
    if row is None:
        return Peak(None, f"no peak is known for {device_name!r}; {HINT}")
    if row.trust == "C":
        return Peak(None, f"no trustworthy peak for {row.chip}: {row.source}; {HINT}")
    tflops = row.fp8 if dtype == "fp8" else row.half if dtype in row.dtypes else None
    if tflops is None:
        return Peak(None, f"no peak of {row.chip} is known for {dtype or 'an unknown data type'}; {HINT}")
    return Peak(tflops * _TERA, f"{row.chip}, dense {dtype}: {row.source} (trust {row.trust})")


def flop_per_clock(device_name: str, dtype: str) -> int | None:
    """Dense FLOP that all tensor cores of one device do in one clock of its SMs; None if not known. Arguments
    as for `find_peak`.
    """
    row = _row_of(device_name)
    return row.flop_per_clock if row is not None and dtype in row.dtypes else None
