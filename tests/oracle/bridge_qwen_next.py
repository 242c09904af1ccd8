"""A user's script for Megatron-Bridge that trains a small Qwen3-Next, each of its steps counted part by part:
`bridge_qwen_next.py OUT`. Expects what `tests/processes/test_bridge.py` puts on the path.

Bridge's provider of Qwen3-Next names Transformer Engine's layers. Here Megatron-Core's own spec of local
layers has its gated delta net in place of attention where the model has one.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

from tests.oracle import counted_components, reference_kernels

SIZES = {
    "num_layers": 3,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_query_groups": 2,
    "kv_channels": 24,
    "ffn_hidden_size": 96,
    "moe_ffn_hidden_size": 48,
    "num_moe_experts": 4,
    "moe_router_topk": 2,
    "moe_shared_expert_intermediate_size": 32,
    "moe_layer_freq": [1, 0, 1],
    "linear_attention_freq": 3,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "seq_length": 80,
    "vocab_size": 8064,
    "experimental_attention_variant": "gated_delta_net",
    "qk_layernorm": True,
    "layernorm_zero_centered_gamma": False,
}
ON_CPU = {
    "bf16": False,
    "autocast_dtype": None,
    "use_cpu_initialization": True,
    "transformer_impl": "local",
    "persist_layer_norm": False,
    "moe_token_dispatcher_type": "alltoall",
    "moe_router_load_balancing_type": "aux_loss",
} | dict.fromkeys(
    [
        "gradient_accumulation_fusion",
        "masked_softmax_fusion",
        "bias_activation_fusion",
        "bias_dropout_fusion",
        "cross_entropy_loss_fusion",
        "moe_grouped_gemm",
        "moe_permute_fusion",
        "apply_rope_fusion",
    ],
    False,
)


def layers(config: Any) -> Any:
    """The spec of a stack with gated delta nets."""
    from megatron.core.models.gpt.experimental_attention_variant_module_specs import (
        get_linear_attention_pattern,
    )
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
    from megatron.core.ssm.gated_delta_net import GatedDeltaNet, GatedDeltaNetSubmodules
    from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    block = get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization="RMSNorm")
    parts = GatedDeltaNetSubmodules(ColumnParallelLinear, WrappedTorchNorm, RowParallelLinear)
    linear = ModuleSpec(module=GatedDeltaNet, submodules=parts)
    for index, is_linear in enumerate(get_linear_attention_pattern(config)):
        if is_linear:
            layer = block.layer_specs[index]
            submodules = dataclasses.replace(layer.submodules, self_attention=linear)
            block.layer_specs[index] = dataclasses.replace(layer, submodules=submodules)
    return block


def main() -> None:
    """Two steps of training."""
    import torch
    import train as small

    small.stand_in_for_what_needs_a_gpu()
    reference_kernels.install()
    import megatron.bridge.training.train as loop
    from megatron.bridge.models.qwen.qwen_provider import Qwen3NextModelProvider
    from megatron.bridge.training.gpt_step import forward_step
    from megatron.bridge.training.pretrain import pretrain

    counted_components.count_steps(loop, Path(sys.argv[1]))
    cfg = small.configuration({"train_iters": 2, "eval_interval": 100})
    cfg.model = Qwen3NextModelProvider(
        **SIZES, **ON_CPU, params_dtype=torch.float32, transformer_layer_spec=layers
    )
    cfg.dataset.seq_length = SIZES["seq_length"]
    pretrain(cfg, forward_step)


if __name__ == "__main__":
    main()
