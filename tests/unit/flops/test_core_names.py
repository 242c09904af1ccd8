"""TransformerConfig's names mean what they mean there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.flops.argument_files import ARGUMENTS, CORE, EXPERTS, MLA, OF_EXPERTS, same, shape


def test_names_of_transformer_config():
    same(CORE, ARGUMENTS)
    same(CORE | EXPERTS, ARGUMENTS | OF_EXPERTS)
    same(CORE | MLA, ARGUMENTS | MLA | {"group_query_attention": False})
    plain = CORE | {"gated_linear_unit": False, "ffn_hidden_size": None}
    assert (shape(plain).gated, shape(plain).ffn) == (False, 256)


def test_an_older_name_of_the_attention_variant():
    linear = {"linear_attention_freq": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4}
    sizes = linear | {"linear_key_head_dim": 8, "linear_value_head_dim": 8}
    assert shape(ARGUMENTS | sizes | {"linear_attention_type": "gated_delta_net"}).delta is not None


SMALL: dict[str, Any] = {
    **{"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 256, "seq_length": 32},
    **{"position_embedding_type": "rope", "share_embeddings_and_output_weights": False},
    **{"gated_linear_unit": False, "micro_batch_size": 1, "global_batch_size": 2},
}
EXPERTS_OF_32 = {"num_moe_experts": 4, "moe_ffn_hidden_size": 32}
LATENT = {"multi_latent_attention": True, "q_lora_rank": 8, "kv_lora_rank": 16, "qk_head_dim": 8}
PLAIN = {"gated_linear_unit": True, "add_bias_linear": False, "normalization": "RMSNorm"}


@pytest.mark.parametrize(
    ("said", "weights"),
    [
        (EXPERTS_OF_32 | {"position_embedding_type": "learned_absolute"}, 102792),
        (EXPERTS_OF_32 | {"gated_linear_unit": True, "position_embedding_type": "learned_absolute"}, 119432),
        (LATENT | {"qk_pos_emb_head_dim": 4, "v_head_dim": 8}, 109888),
        (PLAIN | {"mtp_num_layers": 2, "mtp_use_repeated_layer": True}, 238208),
    ],
)
def test_weights_are_those_of_the_gptmodel_that_megatron_core_0_19_2_builds(said, weights):
    """Of routers with biases, the norms of latent attention, a predicting layer that is passed twice."""
    assert shape(SMALL | {"max_position_embeddings": 32} | said).parameters == weights
