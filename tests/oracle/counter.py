"""Runs real Megatron-Core models and counts what they multiply: one JSON list of configurations in, one of
counts out.

Its own process (it redirects torch.cuda): `python -m tests.oracle.counter` with Megatron-Core on PYTHONPATH.
It knows no formula: see `products.Counter`.
"""

from __future__ import annotations

import json
import re
import sys
import warnings

import torch
from torch.utils._device import _device_constructors
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode

from flagscale_perf.hosts import rehearsal
from flagscale_perf.hosts.patching import Patches
from tests.oracle import compressed_attention, megatron_encoders
from tests.oracle.products import Counter

COMPONENTS = (
    (r"\.adapter\b", "lora"),
    (r"linear_(q|kv)_(proj|down_proj|up_proj)$", r"qkv_proj.\1_\2"),
    (r"linear_qkv$", "qkv_proj"),
    (r"linear_(q|kv)$", r"\1_proj"),
    (r"^lm_head\.dense$", "mlm_transform"),
    (r"^pooler\.dense$", "pooler"),
    (r"^binary_head$", "nsp_head"),
    (r"linear_proj$", "out_proj"),
    (r"core_attention$", "core_attention"),
    (r"mlp\.router$", "moe_router"),
    (r"mlp\.experts\b", "moe_routed_experts"),
    (r"mlp\.shared_experts\.linear_fc[12]$", "moe_shared_experts"),
    (r"mlp\.shared_experts$", "moe_shared_expert_gate"),
    (r"mlp\.fc[12]_latent_proj$", "moe_latent_proj"),
    (r"mlp\.linear_fc[12]$", "mlp"),
    (r"eh_proj$", "eh_proj"),
    (r"output_layer$", "logits"),
)


def component_of(path: str) -> str | None:
    """The component a module's own products belong to; None for modules that have none of their own."""
    name = path.replace(".to_wrap", "")
    for pattern, component in COMPONENTS:
        match = re.search(pattern, name)
        if match:
            prefixes = (("mtp_", r"^mtp\."), ("encoder_", r"^encoder\."), ("cross_", r"\.cross_attention\."))
            prefix = next((prefix for prefix, pattern in prefixes if re.search(pattern, name)), "")
            return prefix + match.expand(component)
    return None


class MegatronCounter(Counter):
    """The output layer serves the further predictions first, then the model's own."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model, component_of)
        self._logits_seen = 0
        self._depths = getattr(model.config, "mtp_num_layers", None) or 0

    def start_forward(self) -> None:
        self.in_backward, self._logits_seen = False, 0

    def name_of_call(self, component: str) -> str:
        if component != "logits" or self.in_backward:
            return component
        self._logits_seen += 1
        return "mtp_logits" if self._logits_seen <= self._depths else "logits"


class Adapter(torch.nn.Module):
    """LoRA's two matrices."""

    def __init__(self, n_in: int, n_out: int, dim: int) -> None:
        super().__init__()
        self.linear_in = torch.nn.Linear(n_in, dim, bias=False)
        self.linear_out = torch.nn.Linear(dim, n_out, bias=False)

    def forward(self, x):
        return self.linear_out(self.linear_in(x))


class Adapted(torch.nn.Module):
    """A linear layer with an adapter beside it."""

    def __init__(self, to_wrap: torch.nn.Module, dim: int) -> None:
        super().__init__()
        self.to_wrap = to_wrap
        self.adapter = Adapter(to_wrap.input_size, to_wrap.output_size, dim)

    def forward(self, x, *args, **kwargs):
        output, bias = self.to_wrap(x, *args, **kwargs)
        return output + self.adapter(x), bias


class LatentLinear(torch.nn.Linear):
    """Stands in for Transformer Engine's linear layer around latent experts; returns output and bias apart,
    as it does.
    """

    def __init__(self, n_in, n_out, *, bias, **_) -> None:
        super().__init__(n_in, n_out, bias=bias)

    def forward(self, x):
        return super().forward(x), None


def redirect_to_cpu(patches: Patches) -> None:
    """torch.cuda lands on the CPU; Megatron-Core does without Transformer Engine where it has no layer of its
    own.
    """
    import importlib

    rehearsal.install(patches)
    for name in ("range_push", "range_pop"):  # marks for a profiler
        patches.set(torch.cuda.nvtx, name, lambda *_: None)
    for name, patch in rehearsal.host_patches(patches).items():
        if name.startswith("megatron.core"):
            patch(importlib.import_module(name))
    import megatron.core.tensor_parallel.random as checkpoints
    import megatron.core.transformer.dot_product_attention as attention
    import megatron.core.transformer.moe.experts as experts
    import megatron.core.transformer.moe.moe_layer as moe_layer
    import megatron.core.transformer.multi_latent_attention as latent_attention
    import megatron.core.transformer.multi_token_prediction as multi_token_prediction

    patches.set(moe_layer, "HAVE_TE", True)
    patches.set(moe_layer, "TELinear", LatentLinear)
    patches.set(latent_attention, "TELinear", LatentLinear)  # 0.16 asks whether a layer is one
    patches.set(multi_token_prediction, "warnings", warnings)  # 0.15 uses the name without importing it
    init, forward = attention.DotProductAttention.__init__, experts.SequentialMLP.forward
    init_checkpoint = checkpoints.CheckpointWithoutOutput.__init__
    # It takes False for "some fp8 recipe", and then asks Transformer Engine.
    patches.set(
        checkpoints.CheckpointWithoutOutput,
        "__init__",
        lambda self, fp8=None: init_checkpoint(self, fp8 or None),
    )

    def with_widths(self, config, *args, k_channels=None, v_channels=None, **kwargs):
        """Latent attention passes widths that the local class does not know, although it would multiply them
        all right.
        """
        init(self, config, *args, **kwargs)
        if v_channels is not None:
            self.hidden_size_per_partition = v_channels * config.num_attention_heads

    def with_counts(self, rows, tokens_per_expert, *args):
        """The meta device cannot say how many rows each expert has; padded to their capacity, all have the
        same.
        """
        if rows.device.type == "meta":
            tokens_per_expert = torch.full(
                (self.num_local_experts,), rows.shape[0] // self.num_local_experts, device="cpu"
            )
        return forward(self, rows, tokens_per_expert, *args)

    patches.set(attention.DotProductAttention, "__init__", with_widths)
    patches.set(experts.SequentialMLP, "forward", with_counts)


def start_megatron() -> None:
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    model_parallel_cuda_manual_seed(1)


def transformer_config(args: dict):
    """Megatron's argument names to its model's configuration, as its own `core_transformer_config_from_args`
    maps them.
    """
    import dataclasses

    import torch.nn.functional as F
    from megatron.core.activations import squared_relu
    from megatron.core.fusions.fused_bias_geglu import quick_gelu
    from megatron.core.transformer import MLATransformerConfig, TransformerConfig

    cls = MLATransformerConfig if args.get("multi_latent_attention") else TransformerConfig
    known = {field.name for field in dataclasses.fields(cls)}
    values = {name: value for name, value in args.items() if name in known and name != "num_query_groups"}
    values |= {
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "perform_initialization": False,
        "use_cpu_initialization": not args.get("meta"),
        "gradient_accumulation_fusion": False,
        "persist_layer_norm": False,
        "bias_activation_fusion": False,
        "bias_dropout_fusion": False,
        "masked_softmax_fusion": False,
        "apply_rope_fusion": False,
    }
    if args.get("window_size"):
        values["window_size"] = tuple(args["window_size"])
    if args.get("group_query_attention"):
        values["num_query_groups"] = args["num_query_groups"]
    if args.get("swiglu"):
        values |= {"gated_linear_unit": True, "activation_func": F.silu}
    if args.get("quick_geglu"):
        values |= {"gated_linear_unit": True, "activation_func": quick_gelu}
    if args.get("squared_relu"):
        values["activation_func"] = squared_relu
    if args.get("num_experts"):
        values |= {
            "num_moe_experts": args["num_experts"],
            "moe_token_dispatcher_type": "alltoall",
            "moe_router_pre_softmax": True,
        }
    if args.get("multi_latent_attention"):
        values |= {"rope_type": "rope"}
    return cls(**values)


def build_model(args: dict):
    """The real `GPTModel` of local layers."""
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import (
        get_gpt_decoder_block_spec,
        get_gpt_layer_local_spec,
        get_gpt_mtp_block_spec,
    )

    config = transformer_config(args)
    if args.get("model_family") in ("t5", "bert"):
        return prepared(megatron_encoders.build(args, config), args)
    if args.get("num_experts"):
        spec = get_gpt_decoder_block_spec(
            config, use_transformer_engine=False, normalization=args.get("normalization")
        )
        for layer in spec.layer_specs:
            shared = getattr(layer.submodules.mlp.submodules, "shared_experts", None)
            if shared is not None and "gate" in (shared.params or {}):
                shared.params = {"gate": bool(args.get("moe_shared_expert_gate"))}
    elif args.get("experimental_attention_variant") == "dsv4_hybrid":
        spec = compressed_attention.layer_spec(config, args)
    else:
        streams = {"enable_hyper_connection": True} if args.get("enable_hyper_connections") else {}
        spec = get_gpt_layer_local_spec(
            qk_layernorm=config.qk_layernorm,
            multi_latent_attention=config.multi_latent_attention,
            normalization=args.get("normalization"),
            **streams,
        )
    further = (
        get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False)
        if args.get("mtp_num_layers")
        else None
    )
    model = GPTModel(
        config,
        spec,
        args["padded_vocab_size"],
        args["max_position_embeddings"],
        share_embeddings_and_output_weights=not args.get("untie_embeddings_and_output_weights"),
        position_embedding_type=args["position_embedding_type"],
        mtp_block_spec=further,
    )
    return prepared(model, args)


def prepared(model: torch.nn.Module, args: dict) -> torch.nn.Module:
    """With weights, of which some may be frozen."""
    for parameter in model.parameters():
        if parameter.device.type != "meta":
            torch.nn.init.normal_(parameter, std=0.02)
    freeze(model, args)
    return model


def freeze(model: torch.nn.Module, args: dict) -> None:
    """Puts the adapters in, and takes the gradient from what is frozen."""
    if args.get("peft_type") == "lora":
        model.requires_grad_(False)
        for path, module in list(model.named_modules()):
            if path.rsplit(".", 1)[-1] in args["lora_target_modules"]:
                model.set_submodule(path, Adapted(module, args["lora_dim"]))
    for name in args.get("frozen", ()):
        prefix = "decoder." if name.startswith("layers.") else ""
        model.get_submodule(prefix + name).requires_grad_(False)


def let_frozen_inputs_through(patches: Patches, args: dict) -> None:
    """Megatron-Core's checkpoint gives no gradient to a part whose input has none, so that what is trained in
    it never is; Megatron-Bridge and others work around it. Here gradients are what they are without it.
    """
    if not (args.get("frozen") or args.get("peft_type")):
        return
    import megatron.core.tensor_parallel as tensor_parallel

    def checkpoint_without(function, distribute_saved_activations, *inputs):
        return checkpoint(function, *inputs, use_reentrant=False)

    patches.set(tensor_parallel, "checkpoint", checkpoint_without)


def forget_losses() -> None:
    """Megatron gathers the further predictions' losses of one model in a global."""
    from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper

    MTPLossLoggingHelper.tracker = {}


def count(args: dict) -> dict:
    """Forward and backward passes of `batch` sequences, in micro-batches where the arguments say so."""
    size = (args.get("micro_batch_size", args["batch"]), args["seq_length"])
    on_meta = bool(args.get("meta"))
    with torch.device("meta" if on_meta else "cpu"):
        model = build_model(args)
        tokens = (
            torch.zeros(size, dtype=torch.long)
            if on_meta
            else torch.randint(0, args["padded_vocab_size"], size)
        )
        positions = torch.arange(size[1]).expand(size)
        mask = torch.ones(1, 1, size[1], size[1], dtype=torch.bool).triu(1)
        counter = MegatronCounter(model)
        with FlopCounterMode(display=False) as independent, counter:
            for _ in range(args["batch"] // size[0]):
                counter.start_forward()
                if args.get("model_family") in ("t5", "bert"):
                    loss = megatron_encoders.loss(model, args, tokens)
                else:
                    loss = model(tokens, positions, mask, labels=tokens).sum()
                counter.in_backward = True
                loss.backward()
    return {
        "components": counter.counts,
        "unattributed": counter.unattributed,
        "flop_counter_total": independent.get_total_flops(),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }


def main() -> None:
    warnings.filterwarnings("ignore")
    torch._dynamo.config.disable = True  # fused products would not be seen one by one
    # torch remembers which functions obey `with torch.device`; that must be the original ones
    _device_constructors()
    patches = Patches()
    redirect_to_cpu(patches)
    start_megatron()
    configurations = json.load(sys.stdin)
    results = []
    for args in configurations:
        torch.manual_seed(1)
        device = "meta" if args.get("meta") else "cpu"
        torch.cuda.current_device = lambda device=device: device
        forget_losses()
        for_this = Patches()
        let_frozen_inputs_through(for_this, args)
        with set_checkpoint_early_stop(False):
            results.append(count(args))
        for_this.undo()
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
