"""Files of arguments: those of known tools in Megatron's names, all others refused by a name."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.files import args_from_file
from flagscale_perf.flops_calculator import step_flops
from flagscale_perf.spine.errors import PerfError
from tests.unit.flops.argument_files import (
    ARGUMENTS,
    CORE,
    EXPERTS,
    LLAMA,
    MLA,
    OF_EXPERTS,
    SHARED,
    YAML_CFG,
    bridge,
    same,
    shape,
)


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


def test_the_yaml_of_megatron():
    same(YAML_CFG, ARGUMENTS)
    moe = {**YAML_CFG, "language_model": YAML_CFG["language_model"] | EXPERTS}
    same(moe, ARGUMENTS | OF_EXPERTS)
    narrow = {**YAML_CFG, "language_model": YAML_CFG["language_model"] | {"ffn_hidden_size": None}}
    assert shape(narrow).ffn == 128  # 8 h / 3 in whole 64s, as its validate_yaml has it


def test_a_gate_of_one_number_for_each_head():
    gated, plain = shape(ARGUMENTS | {"head_wise_attn_gate": True}), shape(ARGUMENTS)
    assert gated.parameters - plain.parameters == 2 * 4 * 64  # layers, heads, hidden size
    per_token = 3 * 2 * 2 * 4 * 64  # forward and twice backward, 2 FLOPs, layers, heads, hidden size
    assert step_flops(gated, 1, 8).model_flops - step_flops(plain, 1, 8).model_flops == 8 * per_token


def test_a_name_of_nothing_is_no_size():
    same(ARGUMENTS | {"num_magic_experts": None, "use_magic_experts": False, "wandb_project": "x"}, ARGUMENTS)
    same(ARGUMENTS | {"rank": 7, "local_rank": 7, "world_size": 8}, ARGUMENTS)  # of the rank that wrote them


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (ARGUMENTS | {"num_magic_experts": 8}, "num_magic_experts is 8; no argument of Megatron"),
        (ARGUMENTS | {"numMagicLayers": 8}, "numMagicLayers is 8; no argument"),
        (ARGUMENTS | {"nexperts": 8}, "nexperts is 8; no argument"),
        (ARGUMENTS | EXPERTS | {"router_topk": 4}, "router_topk is 4; no argument"),
        ({"model": ARGUMENTS, "peft": {"r": 8, "alpha": 16}}, "peft is .'r': 8, 'alpha': 16.; no argument"),
        (ARGUMENTS | {"load_in_4bit": True}, "load_in_4bit is True; no argument"),
        (ARGUMENTS | {"freeze_embedding": True}, "freeze_embedding is True; no argument"),
        (ARGUMENTS | {"intermediate_size": 96}, "intermediate_size is 96; .*; write ffn_hidden_size$"),
        (ARGUMENTS | {"tie_word_embeddings": False}, "write untie_embeddings_and_output_weights$"),
        (
            {"num-layers": 2, "pos-emb": "rotary", "no-weight-tying": True},
            "no_weight_tying is True; no argument",
        ),
        (LLAMA | {"padded_vocab_size": 256}, "num_query_groups is 2, and group_query_attention is not given"),
        (
            {**ARGUMENTS, "group_query_attention": False, "kv_lora_rank": 16},
            "kv_lora_rank is 16, and multi_latent_attention is not given",
        ),
        (
            ARGUMENTS | {"indexer_type_rule": "2*full"},
            "indexer_type_rule is '2.full'; an index shared by layers",
        ),
        (ARGUMENTS | {"indexer_types": ["full", "share"]}, "indexer_types is .*; an index shared by layers"),
        (CORE | {"num_moe_experts": 4, "num_experts": 8}, "num_moe_experts is 4 and num_experts is 8"),
        (LLAMA | {"activation_func": "geglu", "vocab_size": 256}, "write gated_linear_unit true or false"),
        (CORE | {**MLA, "q_lora_rank": ...}, "q_lora_rank is missing; write its rank, or null"),
        ({"model": ARGUMENTS, "second": {"num_layers": 9}}, "num_layers is given twice, 2 and 9"),
        ({"trainer": {}, "exp_manager": None, "model": LLAMA}, "one of NeMo, whose names are not read"),
        ({"train_micro_batch_size_per_gpu": 1}, "one of DeepSpeed"),
        ({"per_device_train_batch_size": 4}, "one of Hugging Face's Trainer"),
        ({"base_model": "x", "sequence_len": 4}, "one of Axolotl"),
        ({"stage": "sft", "finetuning_type": "lora"}, "one of LLaMA-Factory"),
        ({"model": {"name": "llama3", "flavor": "8B"}}, "one of torchtitan"),
        ({"model": {"_target_": "nemo.collections.llm.GPTModel"}}, "one of another tool"),
        (
            bridge({"_target_": "megatron.bridge.models.t5_provider.T5ModelProvider"}),
            "those of deepseek.deepseek_p",
        ),
        (bridge({"interleaved_attn_pattern": [5, 1]}), "interleaved_attn_pattern is .5, 1.; no argument"),
        (bridge({"freeze_language_model": True}), "freeze_language_model is True; no argument"),
        (
            bridge({"num_query_groups": ...}),
            "num_query_groups is missing, and Llama3ModelProvider8B has a default",
        ),
        (bridge({"num_moe_experts": 4}), "moe_ffn_hidden_size is missing"),
        (
            bridge({"vision_config": {"_target_": "megatron.core.X", "num_layers": 2}}),
            "vision_config: describes",
        ),
        (bridge(draft={"num_layers": 3}), "draft: describes a model beside the file's"),
        (bridge(adapter={"alpha": 8}), "adapter is .*alpha"),
        (bridge(distill={"alpha": 8}), "distill is .*alpha"),
        (bridge({"gated_linear_unit": "oui"}), "gated_linear_unit is 'oui'; write true or false"),
        (bridge(peft={"_target_": "megatron.bridge.peft.lora.LoRA", "r": 8}), "peft: r is 8; no field of"),
        (
            bridge(peft={"_target_": "megatron.bridge.peft.lora.LoRA", "target_modules": []}),
            "name the layers that have adapters",
        ),
        (
            CORE | {"untie_embeddings_and_output_weights": False},
            "untie_embeddings_and_output_weights are both",
        ),
        (CORE | {"swiglu": False}, "gated_linear_unit is True, and swiglu is False"),
        (ARGUMENTS | {"disable_bias_linear": True, "add_bias_linear": True}, "disable_bias_linear are both"),
        (ARGUMENTS | {"normalization": "rmsnorm"}, "normalization is 'rmsnorm'; write LayerNorm or RMSNorm"),
        (ARGUMENTS | {"position_embedding_type": "alibi"}, "position_embedding_type is 'alibi'; write"),
        (ARGUMENTS | {"swiglu": "T"}, "swiglu is 'T'; write true or false"),
        (ARGUMENTS | {"vocab_size": 300}, "padded_vocab_size is 256, less than vocab_size 300"),
        (ARGUMENTS | {"window_size": [-5, 0]}, "window_size is"),
        (
            ARGUMENTS | {"window_size": [9, 0], "window_attn_skip_freq": [1]},
            "write one number for each layer",
        ),
        (ARGUMENTS | {"vision_num_layers": 2}, "vision_hidden_size is missing"),
        (ARGUMENTS | {"checkpoint_activations": True}, "checkpoint_activations is True"),
        (ARGUMENTS | {"stages": [{"num_layers": 4}]}, "num_layers is given twice, 2 and 4"),
        *(
            (ARGUMENTS | {name: 3}, f"{name} is 3; no argument")
            for name in (
                *("num_foo", "foo_size", "r", "num_loops", "use_mla", "hc_mult", "unfreeze"),
                "ref_model",
            )
        ),
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


def test_a_file_written_beside_our_own_timers_is_read():
    timers = {"_target_": "flagscale_perf.hosts.timers.Timers", "_call_": True}
    assert shape(bridge({"timers": timers})) == shape(bridge())


def test_no_position_embedding_is_none_and_not_the_default():
    rows = {"max_position_embeddings": 32}
    same(ARGUMENTS | rows | {"position_embedding_type": "none"}, ARGUMENTS)
    learned = shape(ARGUMENTS | rows | {"position_embedding_type": "learned_absolute"})
    assert learned.parameters == shape(ARGUMENTS).parameters + 32 * 64


def test_an_activation_called_swiglu_has_its_gate_whatever_stands_beside():
    """As in Megatron's own examples/gpt3/gpt_config.yaml."""
    section = YAML_CFG["language_model"] | {"gated_linear_unit": False}
    assert shape(YAML_CFG | {"language_model": section}) == shape(YAML_CFG)
