"""How much memory a card has and how fast it is, by the names drivers report."""

from __future__ import annotations

import re

import pytest

from flagscale_perf.device.peaks import is_known
from flagscale_perf.profile.prediction import ROWS, memory_of, whole_name
from flagscale_perf.spine.errors import PerfError

KNOWN = [
    ("Tesla V100-SXM2-32GB", 900, 32),
    ("NVIDIA A100-SXM4-40GB", 1555, 40),
    ("NVIDIA A100-SXM4-80GB", 2039, 80),
    ("NVIDIA A100 80GB PCIe", 1935, 80),
    ("NVIDIA H100 80GB HBM3", 3350, 80),
    ("NVIDIA H100 PCIe", 2000, 80),
    ("NVIDIA H100 NVL", 3900, 94),
    ("nvidia  h200", 4800, 141),
    ("NVIDIA B200", 8000, None),
    ("NVIDIA L40S", 864, 48),
]


@pytest.mark.parametrize(("name", "gb_per_s", "gb"), KNOWN)
def test_known(name: str, gb_per_s: int, gb: int | None) -> None:
    found = memory_of(name)
    assert found is not None
    assert (found.gb_per_s, found.gb) == (gb_per_s, gb)
    assert is_known(name)  # a roofline needs the peak, too


@pytest.mark.parametrize("name", ["NVIDIA H200 NVL", "BI-V150", "cpu", ""])
def test_no_figure_of_a_similar_chip(name: str) -> None:
    assert memory_of(name) is None


def test_one_row_a_chip() -> None:
    for name, *_ in KNOWN:
        assert (
            sum(re.fullmatch(row.pattern, name.lower().replace("  ", " ")) is not None for row in ROWS) == 1
        )


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        ("H200", "NVIDIA H200"),
        ("h100 pcie", "NVIDIA H100 PCIE"),
        ("L40S", "NVIDIA L40S"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
        ("B200", "NVIDIA B200"),
    ],
)
def test_a_part_of_a_name_that_means_one_card(given: str, whole: str) -> None:
    assert whole_name(given) == whole


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            "H100",
            "--device 'H100': several are called so; write one of 'NVIDIA H100 80GB HBM3',"
            " 'NVIDIA H100 PCIE', 'NVIDIA H100 NVL'",
        ),
        ("H1000", "--device 'H1000': it is not in the table; write one of "),
    ],
)
def test_names_that_mean_no_card_or_several(given: str, said: str) -> None:
    with pytest.raises(PerfError, match=re.escape(said)):
        whole_name(given)
