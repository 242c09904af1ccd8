"""Peaks by the names drivers really report; no neighbour's, no sparse one, no guess."""

from __future__ import annotations

import re

import pytest

from flagscale_perf.device import peaks
from flagscale_perf.device.peaks import (
    HINT,
    ROWS,
    Peak,
    find_peak,
    flop_per_clock,
    mean_peak,
    peak_in_force,
)
from flagscale_perf.options.peak import PeakOption

KNOWN = [
    ("Tesla V100-SXM2-32GB", "fp16", 125),
    ("Tesla V100-PCIE-16GB", "fp16", 112),
    ("Tesla V100S-PCIE-32GB", "fp16", 130),
    ("NVIDIA A100-SXM4-80GB", "bf16", 312),
    ("NVIDIA A100-SXM4-40GB", "fp16", 312),
    ("NVIDIA A100 80GB PCIe", "bf16", 312),
    ("NVIDIA A100-PCIE-40GB", "bf16", 312),
    ("NVIDIA A800-SXM4-80GB", "bf16", 312),
    ("NVIDIA A800 80GB PCIe", "bf16", 312),
    ("NVIDIA H100 80GB HBM3", "bf16", 989.4),
    ("NVIDIA H100 80GB HBM3", "fp8", 1979),
    ("NVIDIA H100 PCIe", "bf16", 756),
    ("NVIDIA H100 PCIe", "fp8", 1513),
    ("NVIDIA H100 NVL", "bf16", 835),
    ("NVIDIA H100 NVL", "fp8", 1671),
    ("NVIDIA H800", "bf16", 989.4),
    ("NVIDIA H20", "bf16", 148),
    ("NVIDIA H20", "fp8", 296),
    ("NVIDIA H200", "bf16", 989.4),
    ("nvidia  h200 ", "bf16", 989.4),
    ("NVIDIA B200", "bf16", 2250),
    ("NVIDIA GB200", "bf16", 2500),
    ("NVIDIA L40S", "bf16", 362),
    ("NVIDIA GeForce RTX 4090", "bf16", 165.2),
    ("BI-V150", "bf16", 192),
    ("MTT S4000", "fp16", 100),
]
UNKNOWN = [
    "CPU",
    "CPU (rehearsal)",
    "",
    "NVIDIA GH200 480GB",
    "NVIDIA H200 NVL",
    "NVIDIA H100 80GB HBM2e",
    "NVIDIA H800 PCIe",
    "NVIDIA B300",
    "NVIDIA GB300",
    "NVIDIA L4",
    "NVIDIA L40",
    "NVIDIA GeForce RTX 4090 D",
    "NVIDIA GeForce RTX 4090 Laptop GPU",
    "NVIDIA A10",
    "NVIDIA A30",
    "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
    "Tesla V100-SXM3-32GB",
    "NVIDIA H20-3e",
    "NVIDIA A800 40GB Active",
]
WEAK = [
    "Ascend910B3",
    "Ascend910_9392",
    "MetaX C500",
    "MXC500",
    "MetaX C550",
    "P800",
    "K100_AI",
    "BW1000",
    "gfx936",
    "MLU590-H8",
    "MTT S5000",
]


@pytest.mark.parametrize(("name", "dtype", "tflops"), KNOWN)
def test_known(name, dtype, tflops):
    peak = find_peak(name, dtype)
    assert peak.flop_per_s == tflops * 1e12
    assert re.search(r"dense (bf16|fp16|fp8): .+ \(trust [AB]\)$", peak.source)


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_names_have_no_peak(name):
    peak = find_peak(name, "bf16")
    assert peak.flop_per_s is None
    assert peak.source == f"no peak is known for {name!r}; {HINT}"


@pytest.mark.parametrize("name", WEAK)
def test_weak_figures_are_not_used(name):
    peak = find_peak(name, "bf16")
    assert peak.flop_per_s is None
    assert peak.source.startswith("no trustworthy peak for ")
    assert peak.source.endswith(HINT)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("Tesla V100-SXM2-32GB", "bf16"),
        ("NVIDIA A100-SXM4-80GB", "fp8"),
        ("NVIDIA L40S", "fp8"),
        ("NVIDIA H200", "fp32"),
        ("R300", "bf16"),
    ],
)
def test_a_type_the_chip_has_no_figure_for(name, dtype):
    peak = find_peak(name, dtype)
    assert peak.flop_per_s is None
    assert f"is known for {dtype}; {HINT}" in peak.source


def test_an_unknown_type():
    assert "an unknown data type" in find_peak("NVIDIA H200", "").source


def test_every_row_says_where_it_is_from_and_weak_ones_hold_no_figure():
    for row in ROWS:
        assert row.source
        assert row.trust in ("A", "B", "C")
        assert (row.half is None) == (row.trust == "C")
        assert row.fp8 is None or row.half is not None


def test_the_hint_is_one_line():
    assert all("\n" not in find_peak(name, "bf16").source for name in [*UNKNOWN, *WEAK])


class TestPeakInForce:
    A800 = "NVIDIA A800-SXM4-80GB"

    def test_without_the_option_it_is_the_tables(self):
        assert peak_in_force(None, self.A800, "bf16") == find_peak(self.A800, "bf16")

    def test_a_figure_or_a_matching_entry_wins(self):
        given = Peak(300e12, "--perf-peak-tflops")
        assert peak_in_force(PeakOption.parse("300"), self.A800, "bf16") == given
        assert peak_in_force(PeakOption.parse("BI-V150=192,a800=300"), self.A800, "bf16") == given

    def test_a_list_without_a_match_leaves_the_table(self):
        assert peak_in_force(PeakOption.parse("BI-V150=192"), self.A800, "bf16") == find_peak(
            self.A800, "bf16"
        )

    def test_entries_that_disagree_give_none(self):
        peak = peak_in_force(PeakOption.parse("NVIDIA=300,A800=312"), self.A800, "bf16")
        assert peak == Peak(
            None,
            (
                f"--perf-peak-tflops: NVIDIA=300 and A800=312 both match {self.A800!r}; write names of "
                "which only one matches it"
            ),
        )


class TestMeanPeak:
    RANKS = {"A800": 6, "BI-V150": 2}

    def test_it_is_the_sum_of_all_over_the_ranks(self):
        # 6 x 312 + 2 x 192 = 2256
        assert mean_peak(PeakOption.parse("A800=312,bi-v150=192"), self.RANKS, 8) == Peak(
            282e12, "--perf-peak-tflops, mean over 6 x A800=312 and 2 x BI-V150=192"
        )

    @pytest.mark.parametrize(
        ("given", "reason"),
        [
            (
                None,
                (
                    "devices differ and each type needs its peak: set --perf-peak-tflops "
                    "A800=TFLOPS,BI-V150=TFLOPS"
                ),
            ),
            (
                "312",
                (
                    "devices differ and each type needs its peak: set --perf-peak-tflops "
                    "A800=TFLOPS,BI-V150=TFLOPS"
                ),
            ),
            (
                "A800=312",
                (
                    "devices differ and --perf-peak-tflops has no peak for 'BI-V150': set "
                    "--perf-peak-tflops A800=TFLOPS,BI-V150=TFLOPS"
                ),
            ),
            (
                "A8=312,00=300",
                (
                    "--perf-peak-tflops: A8=312 and 00=300 both match 'A800'; write names of which only "
                    "one matches it"
                ),
            ),
        ],
    )
    def test_a_type_without_a_peak_of_its_own_leaves_none(self, given, reason):
        assert mean_peak(given and PeakOption.parse(given), self.RANKS, 8) == Peak(None, reason)

    def test_ranks_that_say_nothing_leave_none(self):
        peak = mean_peak(PeakOption.parse("A800=312,BI-V150=192"), self.RANKS, 16)
        assert peak == Peak(None, "devices differ, and 8 of 16 ranks say which they have")


def test_every_known_name_is_known() -> None:
    names = peaks.known_names()
    assert len(set(names)) == len(peaks.ROWS)
    assert [name for name in names if not peaks.is_known(name)] == []


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("H100", ["NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIE", "NVIDIA H100 NVL"]),
        ("A100-SXM4", ["NVIDIA A100-SXM4-80GB"]),
        ("RTX 4090", ["NVIDIA GEFORCE RTX 4090"]),
        ("B-V150", ["BI-V150"]),
        ("something else", []),
    ],
)
def test_the_names_nearest_to_an_unknown_one(name: str, near: list[str]) -> None:
    assert peaks.near_names(name) == near


@pytest.mark.parametrize(
    ("name", "clock_mhz"),
    [  # NVIDIA's whitepaper has those of H100 SXM and PCIe; the others are below their boost clocks
        ("NVIDIA H100 80GB HBM3", 1830),
        ("NVIDIA H200", 1830),
        ("NVIDIA H800", 1830),
        ("NVIDIA H100 PCIe", 1620),
        ("NVIDIA H100 NVL", 1545),
        ("NVIDIA B200", 1856),
    ],
)
def test_flop_of_a_clock_make_the_peak_at_the_clock_that_it_is_stated_at(name: str, clock_mhz: int) -> None:
    per_clock, peak = flop_per_clock(name, "bf16"), find_peak(name, "bf16").flop_per_s
    assert per_clock == flop_per_clock(name, "fp16") is not None and peak is not None
    assert peak / per_clock / 1e6 == pytest.approx(clock_mhz, abs=1.5)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("NVIDIA H200", "fp8"),
        ("NVIDIA H200", "fp32"),
        ("NVIDIA H20", "bf16"),
        ("NVIDIA GB200", "bf16"),
        ("NVIDIA A100-SXM4-80GB", "bf16"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "bf16"),
        ("CPU", "bf16"),
    ],
)
def test_flop_of_a_clock_are_not_guessed(name: str, dtype: str) -> None:
    assert flop_per_clock(name, dtype) is None
