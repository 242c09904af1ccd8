"""Hugging Face configurations as the models' authors publish them: parameters must come out as published."""

from __future__ import annotations

import pytest

from flagscale_perf.flops_calculator import ModelShape, count
from flagscale_perf.spine.errors import PerfError

LLAMA3_8B = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 8192,
}
QWEN3_06B = {
    "model_type": "qwen3",
    "num_hidden_layers": 28,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "sliding_window": None,
    "use_sliding_window": False,
    "max_window_layers": 28,
}
QWEN2_05B = {
    "model_type": "qwen2",
    "num_hidden_layers": 24,
    "hidden_size": 896,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
MIXTRAL_8X7B = {
    "model_type": "mixtral",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}
QWEN15_MOE = {
    "model_type": "qwen2_moe",
    "num_hidden_layers": 24,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "intermediate_size": 5632,
    "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632,
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "decoder_sparse_step": 1,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "tie_word_embeddings": False,
}
GPT2 = {
    "model_type": "gpt2",
    "n_layer": 12,
    "n_embd": 768,
    "n_head": 12,
    "n_positions": 1024,
    "n_inner": None,
    "vocab_size": 50257,
}


@pytest.mark.parametrize(
    ("config", "family", "parameters"),
    [
        (LLAMA3_8B, "llama", 8_030_261_248),
        (QWEN3_06B, "qwen", 596_049_920),
        (QWEN2_05B, "qwen", 494_032_768),
        (MIXTRAL_8X7B, "mixtral", 46_702_792_704),
        (QWEN15_MOE, "qwen", 14_315_784_192),
        (DEEPSEEK_V3, "deepseek", 671_026_404_352),
        (GPT2, "gpt", 124_439_808),
    ],
)
def test_published_models(config, family, parameters):
    shape = ModelShape.from_hf(config)
    assert (shape.family, count(shape, 1, 8).parameters) == (family, parameters)


def test_dense_layers_among_mixtures():
    config = QWEN15_MOE | {"num_hidden_layers": 6, "decoder_sparse_step": 2, "mlp_only_layers": [3]}
    assert ModelShape.from_hf(config).experts.layers == (False, True, False, False, False, True)
    assert ModelShape.from_hf(DEEPSEEK_V3).experts.layers == (False,) * 3 + (True,) * 58


def test_further_prediction_counts_where_it_is_trained():
    # transformers writes the key and builds no such layer
    assert ModelShape.from_hf(DEEPSEEK_V3 | {"num_nextn_predict_layers": 1}).mtp_layers == 0
    assert ModelShape.from_hf(DEEPSEEK_V3 | {"mtp_num_layers": 1}).mtp_layers == 1


def test_quantised_weights_are_refused():
    with pytest.raises(
        PerfError, match="quantization_config is given, and quantised weights are not trained"
    ):
        ModelShape.from_hf(DEEPSEEK_V3 | {"quantization_config": {"quant_method": "fp8"}})


def test_windows():
    assert (
        ModelShape.from_hf(LLAMA3_8B | {"model_type": "mistral", "sliding_window": 4096}).window_left(0)
        == 4095
    )
    qwen = ModelShape.from_hf(
        QWEN3_06B | {"sliding_window": 100, "use_sliding_window": True, "max_window_layers": 27}
    )
    assert [qwen.window_left(layer) for layer in (0, 26, 27)] == [-1, -1, 99]
    assert ModelShape.from_hf(QWEN3_06B | {"sliding_window": 100}).window is None


def test_what_is_missing_or_unknown_is_named():
    with pytest.raises(PerfError, match="model_type is 'whisper', known are "):
        ModelShape.from_hf({"model_type": "whisper"})
    with pytest.raises(PerfError, match="vocab_size is missing"):
        ModelShape.from_hf({name: value for name, value in LLAMA3_8B.items() if name != "vocab_size"})


@pytest.mark.parametrize(
    ("config", "more", "says"),
    [
        (MIXTRAL_8X7B, {"sliding_window": "x"}, "sliding_window is 'x'; give a whole number above 0"),
        (MIXTRAL_8X7B, {"num_hidden_layers": 10**12}, "num_layers is 1000000000000; give at most 100000"),
        (QWEN15_MOE, {"decoder_sparse_step": 0}, "decoder_sparse_step is 0; give a whole number above 0"),
        (
            DEEPSEEK_V3,
            {"first_k_dense_replace": "a"},
            "first_k_dense_replace is 'a'; give a whole number from 0 on",
        ),
        (QWEN15_MOE, {"mlp_only_layers": 5}, "mlp_only_layers is 5; write a list of layers"),
        (DEEPSEEK_V3, {"moe_intermediate_size": None}, "moe_intermediate_size is missing"),
    ],
)
def test_a_value_that_cannot_be_is_named(config, more, says):
    with pytest.raises(PerfError, match=says):
        ModelShape.from_hf(config | more)


SMALL = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 256,
}
SMALL_MIXTURE = SMALL | {
    "model_type": "qwen2_moe",
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (SMALL | {"intermediate_size": None}, "intermediate_size is missing"),
        (SMALL | {"intermediate_size": [96, 48]}, r"intermediate_size is \[96, 48\]; give a whole number"),
        (SMALL | {"head_dim": 0}, "head_dim is 0"),
        (SMALL | {"tie_word_embeddings": "perhaps"}, "tie_word_embeddings is 'perhaps'; write true or false"),
        (SMALL | {"compression_config": {"format": "int4"}}, "compression_config is given, and quantised"),
        (SMALL | {"peft_type": "LORA"}, "peft_type is given; adapters are not counted"),
        (SMALL | {"lora_rank": 8}, "lora_rank is given; adapters are not counted"),
        (SMALL | {"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
        (SMALL | {"model_type": "gpt2", "add_cross_attention": True}, "add_cross_attention is true"),
        (SMALL_MIXTURE | {"shared_expert_intermediate_size": 0}, "shared_expert_intermediate_size is 0"),
        (SMALL_MIXTURE | {"num_experts_per_tok": None}, "num_experts_per_tok is missing"),
        (SMALL | {"model_type": "mixtral", "num_local_experts": 0}, "num_local_experts is 0, and mixtral"),
        (
            SMALL | {"model_type": "mixtral", "num_local_experts": 4, "num_experts": 8},
            "num_local_experts is 4 and num_experts is 8, which are one size",
        ),
        (
            SMALL
            | {"model_type": "nemotron_h", "hybrid_override_pattern": "M-", "mlp_bias": True}
            | {"mamba_num_heads": 4, "ssm_state_size": 8},
            "mlp_bias is true; it is counted in a llama that has attention_bias",
        ),
        (SMALL | {"model_type": "bert", "tie_word_embeddings": False}, "only a tied bert is counted"),
        (
            {"model_type": "t5", "d_model": 64, "hidden_size": 32},
            "hidden_size is 32 and d_model 64, which are one size",
        ),
        (
            SMALL | {"model_type": "qwen2", "use_sliding_window": True, "layer_types": ["chunked"] * 2},
            "write full_attention or sliding_attention",
        ),
    ],
)
def test_what_is_built_otherwise_is_refused_by_name(config, says):
    with pytest.raises(PerfError, match=says):
        ModelShape.from_hf(config)
