"""Sizes of recurrent and index blocks from the arguments."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.flops.hybrid_sizes import sizes_of, streams_of
from flagscale_perf.flops.sizes import DeltaNet, Indexer, KimiDelta, Mamba, Rwkv
from flagscale_perf.flops_calculator import ModelShape
from flagscale_perf.spine.errors import PerfError
from tests.unit.flops.families.walks import SIZES

GDN = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 3,
    "linear_value_head_dim": 5,
}


def test_megatrons_defaults() -> None:
    assert sizes_of(Arguments({"hidden_size": 256}), {"mamba", "attention"}) == {
        "mamba": Mamba(heads=8, head_dim=64, state=128, groups=8, conv=4, chunk=128)
    }
    assert sizes_of(Arguments(GDN), {"gdn"}) == {"delta": DeltaNet(2, 4, 3, 5, conv=4)}
    kda = Arguments({"linear_num_heads": 2, "linear_head_dim": 3})
    assert sizes_of(kda, {"kda"}) == {"kda": KimiDelta(2, 3, conv=4)}
    assert sizes_of(Arguments({"hidden_size": 8}), {"rwkv_time_mix"}) == {"rwkv": Rwkv(8, 32)}


def test_an_indexer_is_trained_by_a_loss_of_its_own() -> None:
    given = {"dsa_indexer_n_heads": 2, "dsa_indexer_head_dim": 3, "dsa_indexer_topk": 4}
    assert sizes_of(Arguments(given), {"sparse_attention"}) == {"indexer": Indexer(2, 3, 4)}
    trained = Arguments(given | {"dsa_indexer_loss_coeff": 0.1})
    assert sizes_of(trained, {"sparse_attention"}) == {"indexer": Indexer(2, 3, 4, trained=True)}
    shared = given | {"dsa_indexer_topk_freq": 2, "dsa_indexer_skip_topk_offset": 3}
    assert sizes_of(Arguments(shared), {"sparse_attention"}) == {
        "indexer": Indexer(2, 3, 4, every=2, first=3)
    }
    with pytest.raises(PerfError, match="dsa_indexer_topk_freq is 2 and there is multi-token prediction"):
        sizes_of(Arguments(shared | {"mtp_num_layers": 1}), {"sparse_attention"})


def test_a_gated_delta_product_has_mambas_sizes_and_three_reflections() -> None:
    assert sizes_of(Arguments({"hidden_size": 256}), {"gdp"}) == {
        "mamba": Mamba(heads=8, head_dim=64, state=128, groups=8, householders=3)
    }


def test_residual_streams() -> None:
    on = {"enable_hyper_connections": True}
    assert [streams_of(Arguments(given)) for given in ({}, on, on | {"num_residual_streams": 2})] == [0, 4, 2]
    for other in ({"mtp_num_layers": 1}, {"hybrid_layer_pattern": "M"}, {"spec": "mamba_stack_spec"}):
        with pytest.raises(
            PerfError, match=f"enable_hyper_connections is set and {next(iter(other))} is .* both"
        ):
            streams_of(Arguments(on | other))
    with pytest.raises(PerfError, match="enable_hyper_connections in a model with an encoder is not counted"):
        ModelShape.from_args(SIZES | on | {"decoder_seq_length": 4})


@pytest.mark.parametrize(
    ("given", "block", "says"),
    [
        ({"hidden_size": 30, "mamba_head_dim": 8}, "mamba", "twice the hidden_size 30 is not a multiple of"),
        (
            {"hidden_size": 32, "mamba_num_heads": 6, "mamba_num_groups": 4},
            "mamba",
            "mamba_num_groups 4 does not divide mamba_num_heads 6",
        ),
        (GDN | {"linear_num_value_heads": 3}, "gdn", "linear_num_key_heads 2 does not divide"),
    ],
)
def test_sizes_that_do_not_fit(given: dict[str, object], block: str, says: str) -> None:
    with pytest.raises(PerfError, match=says):
        sizes_of(Arguments(given), {block})
