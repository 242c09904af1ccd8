"""torchtitan's formulas; each of its models' configurations has one, which takes the model, built on the meta
device.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from benchmarks.peers import UnsupportedModelError
from benchmarks.peers.imports import StandIns
from benchmarks.peers.transformers_style import deepseek_experts
from flagscale_perf.flops.shape import Experts, LatentAttention
from flagscale_perf.flops_calculator import ModelShape

BACKENDS = {"attn_backend": "flex"}
ADAPTED = {"linear_qkv": ("wqkv",), "linear_proj": ("wo",), "linear_fc1": ("w1", "w3"), "linear_fc2": ("w2",)}
EXPERT_BACKENDS = BACKENDS | {"moe_comm_backend": "standard", "non_blocking_capacity_factor": None}


def load(name: str) -> Callable[[dict[str, Any], ModelShape], float]:
    StandIns("torchtitan.distributed.minimal_async_ep").install()  # Triton kernels
    import torch

    importlib.import_module("torchtitan.models.llama3")

    def formula(args: dict[str, Any], shape: ModelShape) -> float:
        config = _adapted(_config(shape, args["seq_length"]), shape)
        with torch.device("meta"):
            model = config.build()
        _, per_token = config.get_nparams_and_flops(model, args["seq_length"])
        return per_token * args["seq_length"] * args["batch"]

    return formula


def _config(shape: ModelShape, length: int) -> Any:
    if not shape.gated or shape.output_gate or (shape.experts and shape.experts.latent_size):
        raise UnsupportedModelError("no feed-forward blocks of two matrices, output gates or latent experts")
    if shape.latent:
        return _deepseek(shape, shape.latent, length)
    if shape.mtp_layers:
        raise UnsupportedModelError("further prediction in DeepSeek-V3 only")
    if shape.experts:
        return _qwen_mixture(shape, shape.experts, length)
    return _dense(shape, length)


def _adapted(config: Any, shape: ModelShape) -> Any:
    if shape.lora is None:
        return config
    if shape.experts or shape.latent:
        raise UnsupportedModelError(
            "adapters only on the linear layers of dense models with grouped attention"
        )
    from torchtitan.components.lora import LoRAConverter

    targets = [name for target in shape.lora.targets for name in ADAPTED[target]]
    return LoRAConverter(LoRAConverter.Config(rank=shape.lora.dim, target_modules=targets)).convert(config)


def _common(shape: ModelShape) -> dict[str, Any]:
    from torchtitan.models.common import Embedding, Linear, RMSNorm

    return {
        "dim": shape.hidden,
        "vocab_size": shape.vocab,
        "norm": RMSNorm.Config(normalized_shape=shape.hidden),
        "tok_embeddings": Embedding.Config(num_embeddings=shape.vocab, embedding_dim=shape.hidden),
        "lm_head": Linear.Config(in_features=shape.hidden, out_features=shape.vocab),
        "enable_weight_tying": shape.tied_embeddings,
    }


def _sizes(shape: ModelShape) -> dict[str, Any]:
    return {"n_layers": shape.layers, "dim": shape.hidden, "n_heads": shape.heads}


def _dense(shape: ModelShape, length: int) -> Any:
    from torchtitan.models import llama3, qwen3
    from torchtitan.models.common import ComplexRoPE, CosSinRoPE

    sizes = _sizes(shape) | BACKENDS | {"n_kv_heads": shape.kv_groups, "hidden_dim": shape.ffn}
    if shape.qk_norm or shape.head_dim * shape.heads != shape.hidden:
        rope = CosSinRoPE.Config(dim=shape.head_dim, max_seq_len=length)
        layers = qwen3._build_qwen3_layers(**sizes, head_dim=shape.head_dim, rope=rope)
        return qwen3.Qwen3Model.Config(**_common(shape), layers=layers)
    rope = ComplexRoPE.Config(dim=shape.head_dim, max_seq_len=length)
    return llama3.Llama3Model.Config(**_common(shape), layers=llama3._build_llama3_layers(**sizes, rope=rope))


def _qwen_mixture(shape: ModelShape, experts: Experts, length: int) -> Any:
    from torchtitan.models import qwen3
    from torchtitan.models.common import CosSinRoPE

    if experts.shared_ffn_hidden_size or not all(experts.layers):
        raise UnsupportedModelError("shared experts and dense layers in DeepSeek-V3 only")
    sizes = _sizes(shape) | EXPERT_BACKENDS | {"n_kv_heads": shape.kv_groups, "head_dim": shape.head_dim}
    mixture = {"moe_hidden_dim": experts.ffn_hidden_size, "num_experts": experts.count, "top_k": experts.topk}
    rope = CosSinRoPE.Config(dim=shape.head_dim, max_seq_len=length)
    return qwen3.Qwen3Model.Config(
        **_common(shape), layers=qwen3._build_qwen3_moe_layers(**sizes, **mixture, rope=rope)
    )


def _deepseek(shape: ModelShape, latent: LatentAttention, length: int) -> Any:
    from torchtitan.models import deepseek_v3
    from torchtitan.models.common import ComplexRoPE

    dense, shared = deepseek_experts(shape.experts) if shape.experts else (shape.layers, 0)
    width, count, topk = (
        (shape.experts.ffn_hidden_size, shape.experts.count, shape.experts.topk)
        if shape.experts
        else (1, 1, 1)
    )
    layers = deepseek_v3._build_dsv3_layers(
        **_sizes(shape),
        **EXPERT_BACKENDS,
        n_dense_layers=dense,
        q_lora_rank=latent.q_lora_rank or 0,
        kv_lora_rank=latent.kv_lora_rank,
        qk_nope_head_dim=latent.qk_head_dim,
        qk_rope_head_dim=latent.qk_pos_emb_head_dim,
        v_head_dim=latent.v_head_dim,
        mscale=1.0,
        dense_hidden_dim=shape.ffn,
        moe_hidden_dim=width,
        num_experts=count,
        num_shared_experts=shared,
        router_top_k=topk,
        router_score_func="sigmoid",
        rope=ComplexRoPE.Config(dim=latent.qk_pos_emb_head_dim, max_seq_len=length),
    )
    further = deepseek_v3._build_mtp_layers(layers[-1], dim=shape.hidden, num_mtp_layers=shape.mtp_layers)
    return deepseek_v3.DeepSeekV3Model.Config(**_common(shape), layers=layers, mtp_layers=further)
