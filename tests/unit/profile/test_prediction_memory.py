"""How much memory a card has, by the names drivers report."""

from __future__ import annotations

import re

import pytest

from flagscale_perf.profile.prediction import memory_gb, whole_name
from flagscale_perf.spine.errors import PerfError


@pytest.mark.parametrize(
    ("name", "gb"),
    [
        ("Tesla V100-SXM2-32GB", 32),
        ("NVIDIA A100-SXM4-40GB", 40),
        ("NVIDIA A100 80GB PCIe", 80),
        ("NVIDIA H100 PCIe", 80),
        ("NVIDIA H100 NVL", 94),
        ("nvidia  h200", 141),
        ("NVIDIA L40S", 48),
        ("NVIDIA B200", None),
        ("NVIDIA H200 NVL", None),
        ("BI-V150", None),
        ("", None),
    ],
)
def test_as_the_name_or_the_table_says(name: str, gb: int | None) -> None:
    assert memory_gb(name) == gb


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
