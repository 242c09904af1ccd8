"""Arguments and yaml to a model's sizes: what is derived, what is refused, and that nothing is written to."""

from __future__ import annotations

from argparse import Namespace
from copy import deepcopy

import pytest

from flagscale_perf.flops.shape import Experts, Lora, Recompute, Window
from flagscale_perf.flops.sources import fields_from_args
from flagscale_perf.spine.errors import PerfError

TINY = {"num_layers": 3, "hidden_size": 48, "num_attention_heads": 4, "padded_vocab_size": 16}


def fields(**more):
    return fields_from_args(TINY | more)


def test_megatron_defaults_fill_what_is_not_given():
    assert fields() == {
        "layers": 3,
        "hidden": 48,
        "heads": 4,
        "kv_groups": 4,
        "head_dim": 12,
        "ffn": 192,
        "gated": False,
        "vocab": 16,
        "declared_family": "",
        "latent": None,
        "experts": None,
        "mtp_layers": 0,
        "output_gate": False,
        "head_gate": False,
        "window": None,
        "recompute": Recompute(),
        "lora": None,
        "frozen": (),
        "micro_batch": None,
        "sequence_shards": 1,
        "norm_bias": True,
        "linear_bias": True,
        "qkv_bias": False,
        "out_bias": False,
        "qk_norm": False,
        "sinks": False,
        "tied_embeddings": True,
        "learned_positions": 0,
        "vision": None,
        "encoder": None,
        "bert": None,
        "streams": 0,
        "mtp_shared": False,
        "mtp_detached": False,
    }


def test_arguments_are_only_read():
    args = TINY | {
        "num_query_groups": 2,
        "moe_layer_freq": [1, 0, 1],
        "num_experts": 2,
        "ffn_hidden_size": None,
    }
    before = deepcopy(args)
    namespace = Namespace(**args)
    fields_from_args(args)
    fields_from_args(vars(namespace))
    assert args == before
    assert vars(namespace) == before


@pytest.mark.parametrize(
    ("more", "ffn"),
    [
        ({}, 4 * 48),
        ({"swiglu": True}, 128),  # int(4 * 48 * 2 / 3) = 128, a multiple of 64
        ({"swiglu": True, "hidden_size": 50, "kv_channels": 12}, 128),  # 133, down to a multiple of 64
        ({"swiglu": True, "multiple_of": 50}, 150),
        ({"swiglu": True, "multiple_of": 50, "hidden_dim_multiplier": 1.3}, 200),  # int(128 * 1.3) = 166
        ({"swiglu": True, "multiple_of": 50, "ffn_hidden_size": 7}, 7),
        ({"multiple_of": 50}, 4 * 48),
    ],
)
def test_feed_forward_width(more, ffn):
    assert fields(**more)["ffn"] == ffn


@pytest.mark.parametrize(
    ("more", "vocab"),
    [
        ({"padded_vocab_size": 1000, "vocab_size": 7}, 1000),
        ({"padded_vocab_size": None, "vocab_size": 1000}, 1024),
        ({"padded_vocab_size": None, "vocab_size": 1000, "tensor_model_parallel_size": 4}, 1024),
        (
            {
                "padded_vocab_size": None,
                "vocab_size": 1025,
                "tensor_model_parallel_size": 4,
                "make_vocab_size_divisible_by": 64,
            },
            1280,
        ),
        ({"padded_vocab_size": None, "vocab_size": 1024, "tokenizer_type": "NullTokenizer"}, 1152),
    ],
)
def test_vocabulary_is_padded_as_megatron_pads_it(more, vocab):
    assert fields(**more)["vocab"] == vocab


@pytest.mark.parametrize(
    ("frequency", "layers"),
    [
        (None, (True, True, True)),
        (1, (True, True, True)),
        (2, (True, False, True)),
        ("2", (True, False, True)),
        ([0, 1, 0], (False, True, False)),
        ("[0]+[1]*2", (False, True, True)),
        ("[0, 1, 1]", (False, True, True)),
        ("([0]*1 + [1]*2)", (False, True, True)),
        ("([1])*3", (True, True, True)),
    ],
)
def test_moe_layer_freq_in_every_form(frequency, layers):
    expected = Experts(count=4, topk=2, ffn_hidden_size=9, layers=layers)
    assert fields(num_experts=4, moe_ffn_hidden_size=9, moe_layer_freq=frequency)["experts"] == expected


def test_experts_take_the_dense_width_and_pad_only_when_told():
    moe = {"num_experts": 4, "moe_router_topk": 1, "ffn_hidden_size": 20, "moe_expert_capacity_factor": 1.5}
    layers = (True, True, True)
    assert fields(**moe)["experts"] == Experts(4, 1, 20, layers, drops=True)
    padded = fields(
        **moe,
        moe_pad_expert_input_to_capacity=True,
        tensor_model_parallel_size=2,
        sequence_parallel=True,
        context_parallel_size=3,
    )
    assert padded["experts"] == Experts(
        count=4, topk=1, ffn_hidden_size=20, layers=layers, capacity_factor=1.5
    )
    assert padded["sequence_shards"] == 6


@pytest.mark.parametrize(
    ("more", "recompute"),
    [
        ({"recompute_activations": True}, Recompute(modules=("core_attn",))),
        ({"recompute_granularity": "selective"}, Recompute(modules=("core_attn",))),
        (
            {"recompute_granularity": "selective", "recompute_modules": ["moe", "mlp"]},
            Recompute(modules=("moe", "mlp")),
        ),
        ({"moe_layer_recompute": True}, Recompute(modules=("moe",))),
        (
            {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 3},
            Recompute(full_layers=(True, True, True), together=(3,), full_mtp=True),
        ),
        (
            {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 2},
            Recompute(full_layers=(True, True, False)),
        ),
        (
            {
                "recompute_granularity": "full",
                "recompute_method": "block",
                "recompute_num_layers": 2,
                "enable_hetero": True,
            },
            Recompute(known=False),
        ),
        ({"recompute_granularity_per_stage_micro_batch": [[1, 2, 1]]}, Recompute(known=False)),
    ],
)
def test_recomputation(more, recompute):
    assert fields(**more)["recompute"] == recompute


def test_windows_cover_the_further_layers_too():
    assert fields(window_size=(7, 0))["window"] == Window(7, (True, True, True))
    assert fields(window_size="(7,0)", window_attn_skip_freq=2, mtp_num_layers=1)["window"] == Window(
        7, (True, False, True, False)
    )
    assert fields(window_size=[7, 0], window_attn_skip_freq=[1, 0, 1], mtp_num_layers=1)["window"] == Window(
        7, (True, False, True, True)
    )


def test_adapters():
    assert fields(peft_type="lora")["lora"] == Lora(
        8, ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
    )
    assert fields(peft_type="lora", lora_dim=2, lora_target_modules=["linear_fc1"])["lora"] == Lora(
        2, ("linear_fc1",)
    )


def test_what_yaml_null_becomes_counts_as_not_given():
    assert fields(kv_channels="None", ffn_hidden_size="null", mtp_num_layers="None") == fields()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"num_layers": None}, "num_layers is missing; add it"),
        ({"hidden_size": 0}, "hidden_size is 0; give a whole number above 0"),
        ({"hidden_size": "wide"}, "hidden_size is 'wide'"),
        ({"hidden_size": 48.5}, "hidden_size is 48.5"),
        ({"padded_vocab_size": None}, "padded_vocab_size and vocab_size are missing"),
        ({"hidden_size": 50}, "hidden_size 50 is not a multiple of num_attention_heads 4; give kv_channels"),
        ({"group_query_attention": True}, "num_query_groups is missing"),
        ({"swiglu": True, "squared_relu": True}, "only one of swiglu, quick_geglu and squared_relu"),
        ({"multi_latent_attention": True}, "kv_lora_rank is missing"),
        ({"multi_latent_attention": True, "group_query_attention": True}, "exclude each other"),
        ({"num_experts": 4, "moe_layer_freq": "__import__('os')"}, "moe_layer_freq is"),
        ({"num_experts": 4, "moe_layer_freq": [2, 0, 1]}, r"moe_layer_freq is \[2, 0, 1\]"),
        ({"num_experts": 4, "moe_layer_freq": 0}, "moe_layer_freq is 0"),
        ({"window_size": 7}, "window_size is 7"),
        ({"recompute_granularity": "half"}, "recompute_granularity is 'half'"),
        ({"recompute_granularity": "full"}, "recompute_method is None"),
        ({"recompute_granularity": "full", "recompute_method": "block"}, "recompute_num_layers is missing"),
        ({"peft_type": "prefix"}, "peft_type is 'prefix'"),
        ({"peft_type": "lora", "lora_target_modules": ["router"]}, "lora_target_modules has 'router'"),
        ({"is_hybrid_model": True}, "is_hybrid_model is set, but no hybrid_layer_pattern"),
        ({"heterogeneous_layers_config_path": "x.json"}, "layers of different shapes"),
        ({"freeze_ViT": False}, "vision encoder"),
        ({"tokenizer_type": "RWKVTokenizer"}, "RWKV"),
    ],
)
def test_what_is_missing_or_contradictory_is_named(more, says):
    with pytest.raises(PerfError, match=says):
        fields(**more)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"num_layers": 10**9}, "num_layers is 1000000000; give at most 100000"),
        ({"num_layers": float("inf")}, "num_layers is inf; give a whole number above 0"),
        ({"hidden_size": 10**13}, "hidden_size is 10000000000000; give at most 1000000000000"),
        (
            {"swiglu": True, "multiple_of": 64, "hidden_dim_multiplier": "big"},
            "hidden_dim_multiplier is 'big'; give a number above 0",
        ),
        (
            {
                "num_experts": 4,
                "moe_expert_capacity_factor": "much",
                "moe_pad_expert_input_to_capacity": True,
            },
            "moe_expert_capacity_factor is 'much'; give a number above 0",
        ),
        (
            {"window_size": "4,0", "window_attn_skip_freq": []},
            r"window_attn_skip_freq is \[\]; give a whole number above 0",
        ),
        ({"window_size": "9" * 5000 + ",0"}, "write two whole numbers"),
        ({"frozen": 5}, "frozen is 5; write a list of names"),
        (
            {"recompute_granularity": "selective", "recompute_modules": 5},
            "recompute_modules is 5; write a list of names",
        ),
        (
            {"peft_type": "lora", "lora_target_modules": [3]},
            r"lora_target_modules is \[3\]; write a list of names",
        ),
        ({"num_experts": 4, "moe_layer_freq": "[0]*9999999999"}, "write a whole number, a list of 0 and 1"),
        ({"num_experts": 4, "moe_layer_freq": "[0,1]*99999"}, "write a whole number, a list of 0 and 1"),
        (
            {
                "recompute_granularity": "full",
                "recompute_method": "block",
                "recompute_num_layers": 1,
                "pipeline_model_parallel_size": 3,
                "decoder_first_pipeline_num_layers": "two",
            },
            "decoder_first_pipeline_num_layers is 'two'; give a whole number above 0",
        ),
    ],
)
def test_what_is_no_size_factor_or_list_is_named(more, says):
    with pytest.raises(PerfError, match=says):
        fields(**more)


@pytest.mark.parametrize(
    "text", ["9" * 5000, "[0]" + "+[0]" * 1000, "(" * 999 + "[0]" + ")*9" * 999, "([0]*60000)*2"]
)
def test_a_pattern_of_any_length_takes_no_memory(text):
    with pytest.raises(
        PerfError, match="^model: moe_layer_freq is .{1,80}write a whole number, a list of 0 and 1"
    ):
        fields(num_experts=4, moe_layer_freq=text)


@pytest.mark.parametrize("given", ["core_attn mlp", "core_attn, mlp", ["core_attn", "mlp"]])
def test_a_list_of_names_may_be_one_text(given):
    assert fields(recompute_granularity="selective", recompute_modules=given)["recompute"] == Recompute(
        modules=("core_attn", "mlp")
    )
