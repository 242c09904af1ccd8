"""Files of arguments: those of known tools in Megatron's names, all others refused by a name."""

from __future__ import annotations

from copy import deepcopy

import pytest

from flagscale_perf.flops.files import args_from_file
from flagscale_perf.flops_calculator import ModelShape
from flagscale_perf.spine.errors import PerfError

LLAMA = {
    "num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_query_groups": 2, "ffn_hidden_size": 96,
    "normalization": "RMSNorm", "add_bias_linear": False, "position_embedding_type": "rope",
}  # fmt: skip
ARGUMENTS = LLAMA | {
    "group_query_attention": True, "swiglu": True, "untie_embeddings_and_output_weights": True,
    "padded_vocab_size": 256,
}  # fmt: skip
BRIDGE = {
    "model": LLAMA | {
        "_target_": "megatron.bridge.models.llama.llama_provider.Llama3ModelProvider8B",
        "activation_func": {"_target_": "torch.nn.functional.silu", "_call_": False},
        "transformer_layer_spec": {"_target_": "megatron.bridge.models.gpt_provider.default_layer_spec", "_call_": False},
        "gated_linear_unit": True, "num_moe_experts": None, "share_embeddings_and_output_weights": False,
        "seq_length": 128, "vocab_size": 256,
    },
    "tokenizer": {"_target_": "megatron.bridge.training.tokenizers.config.TokenizerConfig", "vocab_size": 250},
    "train": {"global_batch_size": 8, "micro_batch_size": 1},
    "peft": None,
}  # fmt: skip
YAML_CFG = {
    "language_model": LLAMA | {"activation_func": "swiglu"},
    "model_parallel": {"tensor_model_parallel_size": 1},
    "untie_embeddings_and_output_weights": True,
    "tokenizer_type": "NullTokenizer",
    "vocab_size": 255,
}
EXPERTS = {"num_moe_experts": 4, "moe_ffn_hidden_size": 32, "moe_router_topk": 2, "moe_layer_freq": [0, 1]}
OF_EXPERTS = {"num_experts": 4, "moe_ffn_hidden_size": 32, "moe_router_topk": 2, "moe_layer_freq": [0, 1]}
SHARED = {"moe_shared_expert_intermediate_size": 48}
CORE = LLAMA | {"gated_linear_unit": True, "share_embeddings_and_output_weights": False, "vocab_size": 256}
MLA = {
    "multi_latent_attention": True, "q_lora_rank": None, "kv_lora_rank": 16, "qk_head_dim": 8,
    "qk_pos_emb_head_dim": 4, "v_head_dim": 8,
}  # fmt: skip


def shape(content) -> ModelShape:
    return ModelShape.from_args(args_from_file(content))


def bridge(model=None, **sections):
    content = deepcopy(BRIDGE) | sections
    content["model"] |= model or {}
    return content


def same(content, arguments) -> None:
    assert shape(content) == ModelShape.from_args(arguments)


def test_yaml_sections_become_arguments():
    config = {
        "system": {"tensor-model-parallel-size": 2, "disable_bias_linear": True, "precision": {"bf16": True}},
        "model": {
            "num_layers": 3,
            "no_position_embedding": True,
            "optimizer": {"lr_scheduler": {"lr": 3e-3}},
        },
        "data": {"tokenizer": {"vocab_size": 100}},
    }
    assert args_from_file(config) == {
        "tensor_model_parallel_size": 2,
        "disable_bias_linear": True,
        "bf16": True,
        "num_layers": 3,
        "no_position_embedding": True,
        "lr": 3e-3,
        "vocab_size": 100,
        "add_bias_linear": False,
        "add_position_embedding": False,
    }


def test_a_run_config_of_bridge():
    same(bridge(), ARGUMENTS | {"micro_batch_size": 1})
    assert args_from_file(bridge())["global_batch_size"] == 8
    moe = bridge(EXPERTS | SHARED)
    same(moe, ARGUMENTS | OF_EXPERTS | SHARED | {"micro_batch_size": 1})
    tied = bridge({"share_embeddings_and_output_weights": True, "position_embedding_type": "learned_absolute"})
    assert (shape(tied).tied_embeddings, shape(tied).learned_positions) == (True, 128)
    assert shape(bridge({"num_query_groups": None})).kv_groups == 4
    assert shape(bridge({"ffn_hidden_size": None})).ffn == 256


def test_latent_attention_of_bridge():
    model = MLA | EXPERTS | SHARED | {
        "_target_": "megatron.bridge.models.deepseek.deepseek_provider.DeepSeekV3ModelProvider",
        "num_query_groups": 4, "kv_channels": None, "qk_layernorm": True,
    }  # fmt: skip
    arguments = ARGUMENTS | MLA | OF_EXPERTS | SHARED | {"qk_layernorm": True, "micro_batch_size": 1}
    same(bridge(model), arguments | {"group_query_attention": False})


def test_bridge_pads_only_a_tokenizers_vocabulary():
    assert shape(bridge({"vocab_size": 250})).vocab == 250
    assert shape(bridge({"vocab_size": None})).vocab == 256
    pads = {"vocab_size": 250, "should_pad_vocab": True, "tensor_model_parallel_size": 4}
    assert shape(bridge(pads)).vocab == 512


def test_adapters_of_bridge():
    lora = {"_target_": "megatron.bridge.peft.lora.LoRA", "target_modules": ["linear_qkv"], "dim": 4}
    arguments = {"peft_type": "lora", "lora_dim": 4, "lora_target_modules": ["linear_qkv"], "micro_batch_size": 1}
    same(bridge(peft=lora), ARGUMENTS | arguments)
    del lora["dim"]
    assert shape(bridge(peft=lora)).lora.dim == 32


def test_the_yaml_of_megatron():
    same(YAML_CFG, ARGUMENTS)
    moe = {**YAML_CFG, "language_model": YAML_CFG["language_model"] | EXPERTS}
    same(moe, ARGUMENTS | OF_EXPERTS)
    narrow = {**YAML_CFG, "language_model": YAML_CFG["language_model"] | {"ffn_hidden_size": None}}
    assert shape(narrow).ffn == 128  # 8 h / 3 in whole 64s, as its validate_yaml has it


def test_names_of_transformer_config():
    same(CORE, ARGUMENTS)
    same(CORE | EXPERTS, ARGUMENTS | OF_EXPERTS)
    same(CORE | MLA, ARGUMENTS | MLA | {"group_query_attention": False})
    plain = CORE | {"gated_linear_unit": False, "ffn_hidden_size": None}
    assert (shape(plain).gated, shape(plain).ffn) == (False, 256)


def test_a_name_of_nothing_is_no_size():
    same(ARGUMENTS | {"num_magic_experts": None, "use_magic_experts": False, "wandb_project": "x"}, ARGUMENTS)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (ARGUMENTS | {"num_magic_experts": 8}, "num_magic_experts is 8; no argument of Megatron"),
        (ARGUMENTS | {"load_in_4bit": True}, "load_in_4bit is True; no argument"),
        (ARGUMENTS | {"freeze_embedding": True}, "freeze_embedding is True; no argument"),
        (ARGUMENTS | {"intermediate_size": 96}, "intermediate_size is 96; .*; write ffn_hidden_size$"),
        (ARGUMENTS | {"tie_word_embeddings": False}, "write untie_embeddings_and_output_weights$"),
        ({"num-layers": 2, "pos-emb": "rotary", "no-weight-tying": True}, "no_weight_tying is True; no argument"),
        (LLAMA | {"padded_vocab_size": 256}, "num_query_groups is 2, and group_query_attention is not given"),
        (
            {**ARGUMENTS, "group_query_attention": False, "kv_lora_rank": 16},
            "kv_lora_rank is 16, and multi_latent_attention is not given",
        ),
        (CORE | {"num_moe_experts": 4, "num_experts": 8}, "num_moe_experts is 4 and num_experts is 8"),
        (LLAMA | {"activation_func": "geglu", "vocab_size": 256}, "write gated_linear_unit true or false"),
        (CORE | {**MLA, "q_lora_rank": ...}, "q_lora_rank is missing; write its rank, or null"),
        ({"model": ARGUMENTS, "teacher": {"num_layers": 9}}, "num_layers is given twice, 2 and 9"),
        ({"trainer": {}, "exp_manager": None, "model": LLAMA}, "one of NeMo, whose names are not read"),
        ({"train_micro_batch_size_per_gpu": 1}, "one of DeepSpeed"),
        ({"per_device_train_batch_size": 4}, "one of Hugging Face's Trainer"),
        ({"base_model": "x", "sequence_len": 4}, "one of Axolotl"),
        ({"stage": "sft", "finetuning_type": "lora"}, "one of LLaMA-Factory"),
        ({"model": {"name": "llama3", "flavor": "8B"}}, "one of torchtitan"),
        ({"model": {"_target_": "nemo.collections.llm.GPTModel"}}, "one of another tool"),
        (bridge({"_target_": "megatron.bridge.models.t5_provider.T5ModelProvider"}), "those of deepseek.deepseek_p"),
        (bridge({"interleaved_attn_pattern": [5, 1]}), "interleaved_attn_pattern is .5, 1.; no argument"),
        (bridge({"freeze_language_model": True}), "freeze_language_model is True; no argument"),
        (bridge({"num_query_groups": ...}), "num_query_groups is missing, and Llama3ModelProvider8B has a default"),
        (bridge({"num_moe_experts": 4}), "moe_ffn_hidden_size is missing"),
        (bridge({"transformer_layer_spec": {"_target_": "mine.spec"}}), "such a part is not known"),
        (bridge(peft={"_target_": "megatron.bridge.peft.dora.DoRA"}), "only megatron.bridge.peft.lora.LoRA"),
        (
            bridge(EXPERTS | SHARED, peft={"_target_": "megatron.bridge.peft.lora.LoRA"}),
            "adapters in a model with experts of Megatron-Bridge are not counted",
        ),
        (
            bridge(peft={"_target_": "megatron.bridge.peft.lora.LoRA", "target_modules": ["*.layers.0.*"]}),
            "lora_target_modules has '.*layers.0",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(content, says):
    def given(section):
        return {
            name: given(value) if isinstance(value, dict) else value
            for name, value in section.items()
            if value is not ...
        }

    with pytest.raises(PerfError, match=says):
        shape(given(content))
