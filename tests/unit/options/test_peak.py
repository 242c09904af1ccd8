"""What --perf-peak-tflops may say, and which device an entry is for."""

from __future__ import annotations

import pytest

from flagscale_perf.options.peak import NamedPeak, PeakOption
from flagscale_perf.spine.errors import PerfError


def test_one_figure_is_for_every_device() -> None:
    option = PeakOption.parse(" 989.4 ")
    assert option == PeakOption(989.4)
    assert (option.tflops_of("NVIDIA H100 80GB HBM3"), option.tflops_of("")) == (989.4, 989.4)


def test_a_list_is_for_the_devices_whose_names_contain_an_entrys() -> None:
    option = PeakOption.parse("a800 = 312, BI-V150=192")
    assert option == PeakOption(None, (NamedPeak("a800", 312.0), NamedPeak("BI-V150", 192.0)))
    assert option.tflops_of("NVIDIA A800-SXM4-80GB") == 312
    assert option.tflops_of("bi-v150") == 192
    assert option.tflops_of("NVIDIA A100-SXM4-80GB") is None


def test_two_matches_that_agree_are_one() -> None:
    assert PeakOption.parse("nvidia=312,A800=312,A100=311").tflops_of("NVIDIA A800-SXM4-80GB") == 312


def test_two_matches_that_disagree_are_refused() -> None:
    option = PeakOption.parse("NVIDIA=989.4,A800=312")
    with pytest.raises(PerfError) as refused:
        option.tflops_of("NVIDIA A800-SXM4-80GB")
    assert str(refused.value) == (
        "NVIDIA=989.4 and A800=312 both match 'NVIDIA A800-SXM4-80GB'; write names of which only one "
        "matches it"
    )


@pytest.mark.parametrize("text", ["A800=312,A800-SXM=300", "A800-SXM=300,a800=312", "A800=1,A800=2"])
def test_a_name_within_another_one_with_another_peak_is_refused_at_once(text: str) -> None:
    with pytest.raises(PerfError, match="write names of which none is a part of another") as refused:
        PeakOption.parse(text)
    assert repr(text) in str(refused.value)


def test_a_name_within_another_one_with_the_same_peak_is_fine() -> None:
    assert PeakOption.parse("A800=312,A800-SXM=312").tflops_of("NVIDIA A800-SXM4-80GB") == 312


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "nan",
        "inf",
        "-3",
        "0",
        "1e6",
        "A800",
        "A800=",
        "A800=x",
        "A800=0",
        "=312",
        "A800=312,",
        "A800=312,192",
        "A=1=2",
        "\x1b=3",
    ],
)
def test_anything_else_is_refused_with_value_and_cure(text: str) -> None:
    with pytest.raises(PerfError, match="write for example 989.4, or A800=312,BI-V150=192") as refused:
        PeakOption.parse(text)
    assert repr(text) in str(refused.value)
