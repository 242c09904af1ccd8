"""The formulas that take a Hugging Face model: transformers' own 6 N, and verl's, which reads the
configuration.

A model is given to them as the one of transformers' families that has the same matrices; norms and biases
don't matter here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from benchmarks.peers import UnsupportedModelError
from benchmarks.peers.imports import bare_package
from flagscale_perf.flops.shape import Experts, LatentAttention
from flagscale_perf.flops_calculator import ModelShape
from flagscale_perf.hosts import rehearsal
from flagscale_perf.hosts.patching import Patches


def load(name: str) -> Callable[[dict[str, Any], ModelShape], float]:
    return {"HF 6N": _load_trainer, "verl": _load_verl}[name]()


def _load_trainer() -> Callable[[dict[str, Any], ModelShape], float]:
    import torch
    from transformers import AutoModelForCausalLM, Trainer

    def formula(args: dict[str, Any], shape: ModelShape) -> float:
        with torch.device("meta"):
            trainer: Any = SimpleNamespace(model=AutoModelForCausalLM.from_config(hf_config(shape)))
            return Trainer.floating_point_ops(
                trainer, {"input_ids": torch.empty(args["batch"], args["seq_length"])}
            )

    return formula


def _load_verl() -> Callable[[dict[str, Any], ModelShape], float]:
    for package in ("verl", "verl.utils"):
        bare_package(package)
    rehearsal.install(Patches())  # it also looks up the device's peak
    module = importlib.import_module("verl.utils.flops_counter")

    def formula(args: dict[str, Any], shape: ModelShape) -> float:
        config = hf_config(shape)
        teraflops, _ = module.FlopsCounter(config).estimate_flops([args["seq_length"]] * args["batch"], 1)
        if not teraflops:
            raise UnsupportedModelError(f"verl answers 0 for {config.model_type}")
        return teraflops * 1e12

    return formula


def hf_config(shape: ModelShape) -> Any:
    """A transformers configuration with the same matrices. Raises UnsupportedModelError where no family has
    them.
    """
    from transformers import AutoConfig

    _refuse(shape.output_gate, "output gate")
    if shape.latent:
        values = _deepseek(shape, shape.latent)
    elif shape.experts:
        _refuse(not shape.gated, "experts of two matrices")
        values = _mixture(shape, shape.experts)
    else:
        values = _dense(shape)
    _refuse(bool(shape.mtp_layers) and not shape.latent, f"further prediction in {values['model_type']}")
    common = {
        "vocab_size": shape.vocab,
        "tie_word_embeddings": shape.tied_embeddings,
        "num_hidden_layers": shape.layers,
    }
    sizes = {"hidden_size": shape.hidden, "num_attention_heads": shape.heads}
    return AutoConfig.for_model(**common | sizes | values)


def _refuse(condition: bool, what: str) -> None:
    if condition:
        raise UnsupportedModelError(f"no family has: {what}")


def _dense(shape: ModelShape) -> dict[str, Any]:
    if shape.gated:
        kind = (
            "qwen3"
            if shape.qk_norm
            else "qwen2"
            if shape.qkv_bias and shape.head_dim * shape.heads == shape.hidden
            else "llama"
        )
        return {"model_type": kind, "intermediate_size": shape.ffn} | _grouped(shape)
    _refuse(
        shape.kv_groups != shape.heads or shape.head_dim * shape.heads != shape.hidden,
        "two matrices and a head width or groups",
    )
    return {"model_type": "gpt2", "n_inner": shape.ffn}


def _grouped(shape: ModelShape) -> dict[str, Any]:
    return {"num_key_value_heads": shape.kv_groups, "head_dim": shape.head_dim}


def _mixture(shape: ModelShape, experts: Experts) -> dict[str, Any]:
    _refuse(experts.latent_size is not None, "latent experts")
    _refuse(bool(experts.shared_ffn_hidden_size) and not experts.shared_gate, "shared experts without a gate")
    values = {"intermediate_size": shape.ffn, "num_experts_per_tok": experts.topk} | _grouped(shape)
    if not experts.shared_ffn_hidden_size and all(experts.layers) and not shape.qk_norm:
        return values | {
            "model_type": "mixtral",
            "num_local_experts": experts.count,
            "intermediate_size": experts.ffn_hidden_size,
        }
    dense = [layer for layer, is_moe in enumerate(experts.layers) if not is_moe]
    values |= {
        "num_experts": experts.count,
        "moe_intermediate_size": experts.ffn_hidden_size,
        "mlp_only_layers": dense,
    }
    if not experts.shared_ffn_hidden_size:
        return values | {"model_type": "qwen3_moe"}
    _refuse(shape.head_dim * shape.heads != shape.hidden, "a head width and shared experts")
    return values | {
        "model_type": "qwen2_moe",
        "shared_expert_intermediate_size": experts.shared_ffn_hidden_size,
    }


def _deepseek(shape: ModelShape, latent: LatentAttention) -> dict[str, Any]:
    _refuse(not shape.gated, "latent attention and two matrices")
    values = {
        "model_type": "deepseek_v3",
        "intermediate_size": shape.ffn,
        "num_key_value_heads": shape.heads,
        "q_lora_rank": latent.q_lora_rank,
        "kv_lora_rank": latent.kv_lora_rank,
        "qk_nope_head_dim": latent.qk_head_dim,
        "qk_rope_head_dim": latent.qk_pos_emb_head_dim,
        "v_head_dim": latent.v_head_dim,
        "num_nextn_predict_layers": shape.mtp_layers,
        "first_k_dense_replace": shape.layers,
    }
    if not shape.experts:
        return values
    dense, shared = deepseek_experts(shape.experts)
    return values | {
        "first_k_dense_replace": dense,
        "n_routed_experts": shape.experts.count,
        "num_experts_per_tok": shape.experts.topk,
        "moe_intermediate_size": shape.experts.ffn_hidden_size,
        "n_shared_experts": shared,
        "n_group": 1,
        "topk_group": 1,
    }


def deepseek_experts(experts: Experts) -> tuple[int, int]:
    """How many dense layers come first, and how many shared experts there are. Raises UnsupportedModelError
    for any other arrangement.
    """
    dense = len(experts.layers) - sum(experts.layers)
    _refuse(any(experts.layers[:dense]), "dense layers after mixtures")
    _refuse(experts.shared_gate, "latent attention and a gate of the shared experts")
    shared, rest = divmod(experts.shared_ffn_hidden_size, experts.ffn_hidden_size)
    _refuse(bool(rest), "shared experts that are no multiple of the routed ones")
    return dense, shared
