"""Which blocks layers are made of."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.flops.hybrid import fields
from flagscale_perf.spine.errors import PerfError


def test_blocks_by_their_names() -> None:
    assert fields(Arguments({}), 2) == {}
    named = Arguments({"layer_blocks": [["attention", "mlp"], ["mixture"]]})
    assert fields(named, 2) == {"blocks": (("attention", "mlp"), ("mixture",))}


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("attention", "layer_blocks is 'attention'; write a list"),
        ([["attention"]], "layer_blocks describes 1 layers, num_layers is 2; make them agree"),
        ([["attention"], ["hyena"]], "layer_blocks has 'hyena'; write some of attention, latent_attention"),
    ],
)
def test_blocks_that_cannot_be(named: object, says: str) -> None:
    with pytest.raises(PerfError, match=says):
        fields(Arguments({"layer_blocks": named}), 2)
