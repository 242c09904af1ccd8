"""Megatron-Bridge's formula; it takes a configuration whose `model` is a provider."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from benchmarks.peers.imports import StandIns, bare_package
from benchmarks.peers.megatron_style import DEFAULTS
from flagscale_perf.flops_calculator import ModelShape

# What the formula imports for annotations, for asking whether a run is LoRA, for packed data sets and for
# printing.
UNUSED = (
    "megatron.bridge.peft",
    "megatron.bridge.training.config",
    "megatron.bridge.data",
    "megatron.bridge.utils.common_utils",
)


def load(name: str) -> Callable[[dict[str, Any], ModelShape], float]:
    for package in (
        "megatron.bridge",
        "megatron.bridge.training",
        "megatron.bridge.training.utils",
        "megatron.bridge.utils",
    ):
        bare_package(package)
    StandIns(*UNUSED).install()
    module = importlib.import_module("megatron.bridge.training.utils.flop_utils")
    lora = importlib.import_module("megatron.bridge.peft.lora").LoRA

    def formula(args: dict[str, Any], shape: ModelShape) -> float:
        peft = lora() if shape.lora else None
        return module.num_floating_point_operations(
            SimpleNamespace(model=provider(args, shape), peft=peft), args["batch"]
        )

    return formula


def provider(args: dict[str, Any], shape: ModelShape) -> SimpleNamespace:
    """The arguments under the names of Bridge's model providers."""
    import torch.nn.functional as F

    names = {
        "kv_channels": shape.head_dim,
        "ffn_hidden_size": shape.ffn,
        "num_query_groups": shape.kv_groups,
        "num_moe_experts": args.get("num_experts"),
        "gated_linear_unit": shape.gated,
        "activation_func": F.silu if args.get("swiglu") else F.gelu,
        "vocab_size": shape.vocab,
        "make_vocab_size_divisible_by": 1,
        "tensor_model_parallel_size": 1,
    }
    return SimpleNamespace(**DEFAULTS | args | names)
