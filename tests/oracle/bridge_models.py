"""Builds models of Megatron-Bridge's own classes: `bridge_models.py OUT` writes the number of their weights
there, and each one's run_config.yaml beside it. Expects what `tests/processes/test_bridge.py` puts on the
path.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.oracle.bridge_qwen_next import ON_CPU

SIZES = {
    "num_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "ffn_hidden_size": 96,
    "seq_length": 32,
}
EXPERTS = {"num_moe_experts": 4, "moe_ffn_hidden_size": 32, "moe_router_topk": 2}
# Module and class below megatron.bridge.models -> our family, and what is small here.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt_provider.GPTModelProvider": ("gpt", {"vocab_size": 250, "should_pad_vocab": True}),
    "llama.llama_provider.Llama3ModelProvider8B": ("llama", {"num_query_groups": 2, "vocab_size": 200}),
    "qwen.qwen_provider.Qwen25ModelProvider500M": ("qwen", {"num_query_groups": 2, "vocab_size": 256}),
    "qwen.qwen_provider.Qwen3ModelProvider600M": (
        "qwen",
        {"num_query_groups": 2, "kv_channels": 24, "vocab_size": 256},
    ),
    "qwen.qwen_provider.Qwen3MoEModelProvider30B_A3B": (
        "qwen",
        {"num_query_groups": 2, "kv_channels": 16, "vocab_size": 256, **EXPERTS},
    ),
    "gpt_oss.gpt_oss_provider.GPTOSSProvider20B": (
        "mixtral",
        {"num_query_groups": 2, "kv_channels": 16, "vocab_size": 256, **EXPERTS},
    ),
    "deepseek.deepseek_provider.DeepSeekV3ModelProvider": (
        "deepseek",
        {
            **EXPERTS,
            **{
                "vocab_size": 256,
                "multi_latent_attention": True,
                "kv_channels": 16,
                "moe_layer_freq": [0, 1],
            },
            **{"moe_shared_expert_intermediate_size": 48, "q_lora_rank": 24, "kv_lora_rank": 16},
            **{"qk_head_dim": 8, "qk_pos_emb_head_dim": 4, "v_head_dim": 8, "moe_router_num_groups": None},
            **{"moe_router_group_topk": None, "rotary_scaling_factor": 1.0, "add_bias_linear": False},
        },
    ),
}


def layers(config: Any) -> Any:
    """Local layers, with those of experts where the model has them."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_layer_local_spec

    if config.num_moe_experts:
        return get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization="RMSNorm")
    return get_gpt_layer_local_spec(qk_layernorm=config.qk_layernorm, normalization=config.normalization)


def let_latent_attention_have_local_layers() -> None:
    """The local core, which has no weights, does not take the widths that latent attention names; and there
    is no layer of Transformer Engine to be told from a local one.
    """
    from megatron.core.transformer import multi_latent_attention
    from megatron.core.transformer.dot_product_attention import DotProductAttention as Core

    original = Core.__init__

    def init(self: Any, *args: Any, k_channels: Any = None, v_channels: Any = None, **kwargs: Any) -> None:
        original(self, *args, **kwargs)

    Core.__init__ = init
    multi_latent_attention.TELinear = type("TELinear", (), {})


def built(name: str, sizes: dict[str, Any]) -> tuple[Any, int]:
    """The provider, and the weights of the model that it provides."""
    import importlib
    import os

    import torch
    from megatron.core.process_groups_config import ProcessGroupCollection

    for variable in ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN"):
        os.environ.pop(variable, None)  # set by the model before, which may have had another attention
    module, _, cls = name.rpartition(".")
    kind = getattr(importlib.import_module(f"megatron.bridge.models.{module}"), cls)
    made = kind(**(SIZES | sizes | ON_CPU), params_dtype=torch.float32)
    given = made.transformer_layer_spec
    made.transformer_layer_spec = layers
    made._pg_collection = ProcessGroupCollection.use_mpu_process_groups()
    made.finalize()
    model = made.provide(pre_process=True, post_process=True)
    made.transformer_layer_spec = given
    return made, sum(each.numel() for each in model.parameters())


def main() -> None:
    """Every model, and its configuration as Bridge writes it."""
    import train as small

    small.stand_in_for_what_needs_a_gpu()
    import torch
    from megatron.core import parallel_state, tensor_parallel

    let_latent_attention_have_local_layers()
    torch.distributed.init_process_group("gloo")
    parallel_state.initialize_model_parallel()
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    out = Path(sys.argv[1])
    weights = {}
    for name, (_, sizes) in MODELS.items():
        cfg = small.configuration({"train_iters": 2})
        cfg.model, weights[name] = built(name, sizes)
        cfg.to_yaml(str(out / f"{name}.yaml"))
    (out / "weights.json").write_text(json.dumps(weights))


if __name__ == "__main__":
    main()
