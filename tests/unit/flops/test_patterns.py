"""Which layers something holds for."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.patterns import flags_of_layers
from flagscale_perf.spine.errors import PerfError


@pytest.mark.parametrize(
    ("given", "flags"),
    [(2, "1010"), ("2", "1010"), ([0, 1, 1, 0], "0110"), ("[0]+[1]*3", "0111"), ("([1]+[0])*2", "1010")],
)
def test_every_form(given: object, flags: str) -> None:
    made = flags_of_layers("moe_layer_freq", given, 4, lambda layer, every: layer % every == 0)
    assert made == tuple(flag == "1" for flag in flags)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (0, "x is 0; write a whole number, a list of 0 and 1"),
        ([0, 2], r"x is \[0, 2\]; write a whole number"),
        ([0, 1], "x describes 2 layers, and the model has 4; make them agree"),
    ],
)
def test_what_it_cannot_be(given: object, says: str) -> None:
    with pytest.raises(PerfError, match=says):
        flags_of_layers("x", given, 4, lambda layer, every: True)
