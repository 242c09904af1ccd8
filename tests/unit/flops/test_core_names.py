"""TransformerConfig's names mean what they mean there."""

from __future__ import annotations

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
