"""A layer of FlagScale's own DeepSeek-V4 attention on the CPU: Megatron-LM-FL takes Transformer Engine's
linear layer for it, rotates index vectors by a CUDA kernel, and runs the index's teacher in every training.
"""

from __future__ import annotations

from typing import Any

import torch


class Linear(torch.nn.Linear):
    """Stands in for Transformer Engine's; returns output and bias apart, as it does."""

    def __init__(self, n_in: int, n_out: int, *, bias: bool, **_: Any) -> None:
        super().__init__(n_in, n_out, bias=bias)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        """With no bias to add later."""
        return super().forward(x), None


def layer_spec(config: Any, args: dict[str, Any]) -> Any:
    """Megatron's local layer with this attention."""
    from megatron.core.models import backends
    from megatron.core.models.gpt import experimental_attention_variant_module_specs as specs
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.experimental_attention_variant import (
        csa,
        deepseek_v4_hybrid_attention,
        dsa,
    )

    class Choice:
        """What an index without a loss of its own multiplies: its scores."""

        @staticmethod
        def apply(q: Any, weights: Any, k: Any, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:
            _, _, _, topk, _, mask, *_ = rest
            return dsa.fused_qk_topk_naive(q, k, weights, topk, mask)[1], torch.zeros(())

    class Backend(backends.LocalSpecProvider):
        def linear(self) -> type:
            return Linear

    deepseek_v4_hybrid_attention.TELinear = Linear
    csa.rotate_activation = lambda x: x
    csa.FusedDSAIndexerLoss = Choice
    spec = get_gpt_layer_local_spec(
        qk_layernorm=config.qk_layernorm, multi_latent_attention=True, normalization=args["normalization"]
    )
    spec.submodules.self_attention = specs.get_dsv4_hybrid_module_spec_for_backend(config, Backend())
    return spec
