"""FlagScale's two formulas and the one of the Megatron-LM it brings along; they take Megatron's parsed
arguments.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from benchmarks.peers import PEERS
from flagscale_perf.arguments import flag_of
from flagscale_perf.flops_calculator import ModelShape
from flagscale_perf.hosts.install import Installation

# Megatron's own defaults for what a configuration leaves out.
DEFAULTS = {
    "is_hybrid_model": False,
    "group_query_attention": False,
    "num_query_groups": 1,
    "multi_latent_attention": False,
    "swiglu": False,
    "num_experts": None,
    "moe_ffn_hidden_size": None,
    "moe_shared_expert_intermediate_size": None,
    "moe_layer_freq": 1,
    "moe_router_topk": 2,
    "mtp_num_layers": None,
}


def parsed(args: dict[str, Any], shape: ModelShape) -> SimpleNamespace:
    """Arguments as after Megatron's validation, which fills in the widths that were left out."""
    return SimpleNamespace(**DEFAULTS | args | {"kv_channels": shape.head_dim, "ffn_hidden_size": shape.ffn})


def load(name: str) -> Callable[[dict[str, Any], ModelShape], float]:
    Installation([flag_of("rehearse_on_cpu"), "always"], {}).install()  # both import what only a GPU has
    path, _, function = PEERS[name].formula.rpartition(".")
    formula = getattr(importlib.import_module(path), function)
    return lambda args, shape: formula(parsed(args, shape), args["batch"])
