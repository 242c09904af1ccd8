"""Megatron's arguments, each read as what it is."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.spine.errors import PerfError


@pytest.mark.parametrize("none", [None, "None", " null ", ""])
def test_what_yaml_makes_of_nothing_is_not_given(none) -> None:
    args = Arguments({"size": none})
    assert (args.get("size"), args.optional("size"), args.flag("size"), args.names("size")) == (
        None,
        None,
        False,
        (),
    )
    assert args.integer("size", 7) == 7


@pytest.mark.parametrize(
    ("value", "on"),
    [(True, True), ("yes", True), (" On ", True), (1, True), (False, False), ("0", False), ("off", False)],
)
def test_switches(value, on) -> None:
    assert Arguments({"swiglu": value}).flag("swiglu") is on


@pytest.mark.parametrize(("value", "number"), [(5, 5), ("5", 5), (5.0, 5), (10**12, 10**12)])
def test_whole_numbers(value, number) -> None:
    args = Arguments({"size": value})
    assert (args.integer("size"), args.optional("size")) == (number, number)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "5.0", "x", [5], float("nan"), float("inf")])
def test_what_is_not_a_whole_number_above_0_is_refused(value) -> None:
    with pytest.raises(PerfError) as refused:
        Arguments({"size": value}).integer("size")
    assert str(refused.value) == f"model: size is {value!r}; give a whole number above 0"


def test_limits() -> None:
    args = Arguments({"size": 10**12 + 1, "num_layers": 100_001, "none": -1, "factor": 10**12})
    for read, says in (
        (lambda: args.integer("size"), "model: size is 1000000000001; give at most 1000000000000"),
        (args.layers, "model: num_layers is 100001; give at most 100000"),
        (lambda: args.integer("none", least=0), "model: none is -1; give a whole number from 0 on"),
        (lambda: args.integer("missing"), "model: missing is missing; add it to the arguments"),
        (lambda: args.factor("factor"), "model: factor is 1000000000000; give a number above 0"),
        (lambda: args.names("size"), "model: size is 1000000000001; write a list of names"),
    ):
        with pytest.raises(PerfError) as refused:
            read()
        assert str(refused.value) == says


def test_names_may_be_a_list_or_one_text() -> None:
    args = Arguments({"one": "mlp, moe core_attn", "many": ["mlp", "moe"], "factor": "1.5"})
    assert (args.names("one"), args.names("many")) == (("mlp", "moe", "core_attn"), ("mlp", "moe"))
    assert args.factor("factor") == 1.5
