"""The methods of the GPU side. `traffic.REVEALS` says which plaintext each is shown."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flagscale_perf.spine.errors import PerfError

from .gpu_side import GpuSide, Work

LINEARS = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}


def _init(side: GpuSide, work: Work) -> None:
    for tensor in side.protected_parameters():
        work.give(tensor)


def _embedding(side: GpuSide, work: Work) -> None:
    ids = work.tensors[0].clone()  # checked and used in memory that the caller cannot change meanwhile
    table = side.model.model.embed_tokens.weight
    if ids.dtype != torch.int64 or ids.dim() != 2:
        raise PerfError(f"token ids are {ids.dtype} of shape {tuple(ids.shape)}, not int64 (batch, tokens)")
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < table.shape[0]:
        raise PerfError(f"token ids must be 0 to {table.shape[0] - 1}")
    out = work.new((*ids.shape, table.shape[1]))
    torch.index_select(table, 0, ids.flatten(), out=out.view(-1, table.shape[1]))


def _batch_linear(side: GpuSide, work: Work) -> None:
    name = work.arguments.get("weights")
    if name not in LINEARS:
        raise PerfError(f"weights are {name!r}; write one of: {', '.join(LINEARS)}")
    for path in LINEARS[str(name)]:
        _linear(work, work.tensors[0], side.layer(work.arguments).get_submodule(path))


def _matmul(side: GpuSide, work: Work) -> None:
    left, right = work.tensors
    transposed = bool(work.arguments.get("transposed"))
    width = right.shape[2] if transposed else right.shape[3]
    _product(left, right, transposed, work.new((*left.shape[:3], width)))


def _matmul_linear(side: GpuSide, work: Work) -> None:
    probabilities, values = work.tensors
    context = torch.empty((*probabilities.shape[:3], values.shape[3]), dtype=side.dtype, device=side.device)
    _product(probabilities, values, False, context)
    _linear(work, _tokens_first(context), side.layer(work.arguments).self_attn.o_proj)


def _attention(side: GpuSide, work: Work) -> None:
    work.give(_scaled_dot_product(work))


def _attention_linear(side: GpuSide, work: Work) -> None:
    _linear(work, _scaled_dot_product(work), side.layer(work.arguments).self_attn.o_proj)


def _mlp(side: GpuSide, work: Work) -> None:
    mlp = side.layer(work.arguments).mlp
    _linear(work, mlp.act_fn(mlp.gate_proj(work.tensors[0])) * mlp.up_proj(work.tensors[0]), mlp.down_proj)


def _lm_head(side: GpuSide, work: Work) -> None:
    _linear(work, work.tensors[0], side.model.lm_head)


def _fused_layer(side: GpuSide, work: Work) -> None:
    work.give(side.run_layer(work))


def _linear(work: Work, x: Tensor, linear: nn.Module) -> None:
    weight, bias = linear.weight, linear.bias
    out = work.new((*x.shape[:-1], weight.shape[0])).view(-1, weight.shape[0])
    rows = x.reshape(-1, x.shape[-1])
    if bias is None:
        torch.mm(rows, weight.t(), out=out)
    else:
        torch.addmm(bias, rows, weight.t(), out=out)


def _product(left: Tensor, right: Tensor, transposed: bool, out: Tensor) -> None:
    """`left` by `right` per head, into `out`. Where `right` has fewer heads, each serves as many of
    `left`'s that follow one another: their rows are multiplied as one matrix, and nothing is repeated.
    """
    batch, heads, _, inner = left.shape
    if heads % right.shape[1]:
        raise PerfError(f"{heads} heads cannot share {right.shape[1]} of keys or values")
    many = batch * right.shape[1]
    right = right.reshape(many, *right.shape[2:])
    right = right.transpose(1, 2) if transposed else right
    torch.bmm(left.reshape(many, -1, inner), right, out=out.view(many, -1, out.shape[-1]))


def _scaled_dot_product(work: Work) -> Tensor:
    """Attention of the new tokens over all, as (batch, tokens, heads x dimension)."""
    query, keys, values = work.tensors
    new, seen = query.shape[2], keys.shape[2]
    mask = None
    if 1 < new < seen:
        mask = torch.ones(new, seen, dtype=torch.bool, device=query.device).tril(seen - new)
    context = F.scaled_dot_product_attention(
        query, keys, values, attn_mask=mask, is_causal=1 < new == seen,
        enable_gqa=query.shape[1] != keys.shape[1],
    )  # fmt: skip
    return _tokens_first(context)


def _tokens_first(context: Tensor) -> Tensor:
    batch, heads, tokens, width = context.shape
    return context.transpose(1, 2).reshape(batch, tokens, heads * width)


METHODS: dict[str, Callable[[GpuSide, Work], None]] = {
    "Init": _init,
    "Embedding": _embedding,
    "BatchLinear": _batch_linear,
    "Matmul": _matmul,
    "MatmulLinear": _matmul_linear,
    "Attention": _attention,
    "AttentionLinear": _attention_linear,
    "MLP": _mlp,
    "LMHead": _lm_head,
    "fused_layer": _fused_layer,
}
