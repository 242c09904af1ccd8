"""What Megatron-Bridge writes of a training, in Megatron's names."""

from __future__ import annotations

from flagscale_perf.flops.files import args_from_file
from tests.unit.flops.argument_files import ARGUMENTS, EXPERTS, MLA, OF_EXPERTS, SHARED, bridge, same, shape


def test_a_run_config_of_bridge():
    same(bridge(), ARGUMENTS | {"micro_batch_size": 1})
    assert args_from_file(bridge())["global_batch_size"] == 8
    moe = bridge(EXPERTS | SHARED)
    same(moe, ARGUMENTS | OF_EXPERTS | SHARED | {"micro_batch_size": 1})
    tied = bridge(
        {"share_embeddings_and_output_weights": True, "position_embedding_type": "learned_absolute"}
    )
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
    arguments = {
        "peft_type": "lora",
        "lora_dim": 4,
        "lora_target_modules": ["linear_qkv"],
        "micro_batch_size": 1,
    }
    same(bridge(peft=lora), ARGUMENTS | arguments)
    del lora["dim"]
    assert shape(bridge(peft=lora)).lora.dim == 32
