"""The cores of recurrent layers, written so that each product is one: token by token, and chunk by chunk.

transformers' own code multiplies them elementwise in part, where no product can be seen; these stand in for
it, in the form that is asked for. `test_reference_cores` holds both forms against transformers' own, value by
value. The first state needs a gradient as any later one, and the last one is used, so that a sequence has no
edges.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.oracle.products import UNCOUNTED, Counter

FOLDERS = {"qwen3_5_text": "qwen3_5", "qwen3_5_moe_text": "qwen3_5_moe"}
# model_type -> the layers' name in components, transformers' function of their core, and the one below
CORES = {
    "mamba2": ("mamba", "mamba2_chunk_scan", "scan"),
    "nemotron_h": ("mamba", "mamba2_chunk_scan", "scan"),
    "bamba": ("mamba", "mamba2_chunk_scan", "scan"),
    "granitemoehybrid": ("mamba", "mamba2_chunk_scan", "scan"),
    "qwen3_next": ("gdn", "torch_chunk_gated_delta_rule", "delta"),
    "qwen3_5_text": ("gdn", "torch_chunk_gated_delta_rule", "delta"),
    "qwen3_5_moe_text": ("gdn", "torch_chunk_gated_delta_rule", "delta"),
    "kimi_linear": ("kda", "chunk_kimi_delta_attention", "delta"),
}


def install(counter: Counter, model_type: str, form: str) -> Callable[[], None]:
    """Puts the cores and convolutions of this form into transformers' module; returns what takes them out."""
    if model_type not in CORES:
        return lambda: None
    folder = FOLDERS.get(model_type, model_type)
    module = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    name, function, kind = CORES[model_type]
    before = {each: getattr(module, each) for each in (function, "causal_conv1d_fn")}

    def core(*given: Any, **named: Any) -> Any:
        """`given` and `named` are what transformers' function takes."""
        with counter.part(f"{name}.core", *(each for each in given if isinstance(each, Tensor))) as made:
            result = (scan if kind == "scan" else delta)(counter, form, *given, **named)
            made.append(result)
        return result if kind == "scan" else (result, None)

    def convolution(x: Tensor, weight: Tensor, bias: Any = None, activation: str = "", **_: Any) -> Tensor:
        """Only what goes out is computed; transformers convolves the padding behind the sequence, too."""
        with counter.part(f"{name}.conv1d", x) as made:
            padded = F.pad(x, (weight.shape[-1] - 1, 0))
            made.append(F.conv1d(padded, weight.unsqueeze(1), bias, groups=x.shape[1]))
        return F.silu(made[0]) if activation == "silu" else made[0]

    setattr(module, function, core)
    module.causal_conv1d_fn = convolution

    def undo() -> None:
        for each, original in before.items():
            setattr(module, each, original)

    return undo


def scan(
    counter: Any, form: str, x: Tensor, dt: Tensor, decay: Tensor, b: Tensor, c: Tensor, **more: Any
) -> Tensor:
    """Mamba-2's state-space model, with the arguments of transformers' `mamba2_chunk_scan`."""
    dt = F.softplus(dt + more["dt_bias"]).clamp(*more["dt_limit"])
    given, log_decay = x * dt[..., None], decay * dt
    made = (_scan_chunks if form == "chunked" else _scan_tokens)(given, log_decay, b, c, more["chunk_size"])
    return made + more["D"][:, None] * x


def _start(*given: Tensor, size: tuple[int, ...]) -> Tensor:
    return torch.zeros(size, requires_grad=any(each.requires_grad for each in given))


def _scan_tokens(x: Tensor, log_decay: Tensor, b: Tensor, c: Tensor, _: int) -> Tensor:
    batch, length, heads, width = x.shape
    b, c = (each.repeat_interleave(heads // each.shape[2], 2) for each in (b, c))
    state, made = _start(x, b, c, size=(batch, heads, width, b.shape[-1])), []
    for t in range(length):
        into = torch.matmul(x[:, t, :, :, None], b[:, t, :, None, :])
        state = state * log_decay[:, t, :, None, None].exp() + into
        made.append(torch.matmul(state, c[:, t, :, :, None])[..., 0])
    return torch.stack(made, 1)


def _chunks(x: Tensor, chunk: int) -> Tensor:
    """From (batch, length, heads, ...) to (batch, heads, chunks, chunk, ...), the last one filled up."""
    missing = -x.shape[1] % chunk
    filled = torch.cat([x, x.new_zeros(x.shape[0], missing, *x.shape[2:])], 1) if missing else x
    return filled.unflatten(1, (-1, chunk)).movedim(3, 1)


def _scan_chunks(x: Tensor, log_decay: Tensor, b: Tensor, c: Tensor, chunk: int) -> Tensor:
    batch, length, heads, width = x.shape
    repeats = heads // b.shape[2]
    x, log_decay, b, c = (_chunks(each, chunk) for each in (x, log_decay, b, c))
    summed = log_decay.cumsum(-1)
    between = (summed[..., :, None] - summed[..., None, :]).masked_fill(_upper(chunk, 1), -torch.inf).exp()
    scores = torch.matmul(c, b.transpose(-1, -2))  # one for a group of heads
    inside = torch.matmul(scores.repeat_interleave(repeats, 1) * between, x)
    b, c = (each.repeat_interleave(repeats, 1) for each in (b, c))
    kept = torch.matmul((b * (summed[..., -1:] - summed).exp()[..., None]).transpose(-1, -2), x)
    state, made = _start(x, b, c, size=(batch, heads, b.shape[-1], width)), []
    for i in range(x.shape[2]):
        made.append(torch.matmul(c[:, :, i] * summed[:, :, i, :, None].exp(), state))
        state = state * summed[:, :, i, -1, None, None].exp() + kept[:, :, i]
    result = (inside + torch.stack(made, 2) + 0 * state.sum()).movedim(1, 3).flatten(1, 2)
    return result[:, :length]


def _upper(chunk: int, diagonal: int) -> Tensor:
    return torch.ones(chunk, chunk, dtype=torch.bool).triu(diagonal)


def delta(
    counter: Any, form: str, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, **more: Any
) -> Tensor:
    """The gated delta rule, the decay `g` for each head or for each of its channels, with the arguments of
    transformers' functions.
    """
    q, k = (each.repeat_interleave(v.shape[2] // each.shape[2], 2).float() for each in (q, k))
    if more.get("use_qk_l2norm_in_kernel"):
        q, k = (each * (each.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for each in (q, k))
    q = q / q.shape[-1] ** 0.5
    if form == "chunked":
        return _delta_chunks(counter, (q, k, v.float(), g, beta), more.get("chunk_size", 64))
    return _delta_tokens(q, k, v.float(), g, beta)


def _delta_tokens(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    batch, length, heads, width = k.shape
    state, made = _start(q, k, v, size=(batch, heads, width, v.shape[-1])), []
    decay = (g if g.dim() == 4 else g[..., None]).exp()
    for t in range(length):
        state = state * decay[:, t, :, :, None]
        known = torch.matmul(k[:, t, :, None, :], state)
        correction = (v[:, t, :, None, :] - known) * beta[:, t, :, None, None]
        state = state + torch.matmul(k[:, t, :, :, None], correction)
        made.append(torch.matmul(q[:, t, :, None, :], state)[:, :, 0])
    return torch.stack(made, 1)


class Inverse(torch.autograd.Function):
    """Of 1 + a strictly lower triangular matrix. A substitution and no product: nothing in it is counted."""

    @staticmethod
    def forward(ctx: Any, lower: Tensor, counter: Any) -> Tensor:
        """`counter`: what must not count it; None where nothing does."""
        one = torch.eye(lower.shape[-1]).expand_as(lower)
        found = torch.linalg.solve_triangular(one + lower, one, upper=False, unitriangular=True)
        ctx.save_for_backward(found)
        ctx.counter = counter
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """As of any inverse."""
        turned = ctx.saved_tensors[0].transpose(-1, -2)
        if ctx.counter is None:
            return -torch.matmul(turned, torch.matmul(gradient, turned)), None
        with ctx.counter.part(UNCOUNTED):
            return -torch.matmul(turned, torch.matmul(gradient, turned)), None


def _delta_chunks(counter: Any, given: tuple[Tensor, ...], chunk: int) -> Tensor:
    batch, length, heads, width = given[1].shape
    q, k, v, g, beta = (_chunks(each, chunk) for each in given)
    summed = (g if g.dim() == 5 else g[..., None]).cumsum(3)
    grown, shrunk = summed.exp(), (-summed).exp()
    k_beta, v_beta = k * beta[..., None], v * beta[..., None]
    known = torch.matmul(k_beta * grown, (k * shrunk).transpose(-1, -2))
    scores = torch.matmul(q * grown, (k * shrunk).transpose(-1, -2))
    inverse = Inverse.apply(known.masked_fill(_upper(chunk, 0), 0.0), counter)
    scores = scores.masked_fill(_upper(chunk, 1), 0.0)
    values, keys = torch.matmul(inverse, v_beta), torch.matmul(inverse, k_beta * grown)
    state, made = _start(q, k, v, size=(batch, heads, width, v.shape[-1])), []
    for i in range(k.shape[2]):
        fresh = values[:, :, i] - torch.matmul(keys[:, :, i], state)
        made.append(torch.matmul(q[:, :, i] * grown[:, :, i], state) + torch.matmul(scores[:, :, i], fresh))
        last = summed[:, :, i, -1:]
        into = torch.matmul((k[:, :, i] * (last - summed[:, :, i]).exp()).transpose(-1, -2), fresh)
        state = state * last.transpose(-1, -2).exp() + into
    result = (torch.stack(made, 2) + 0 * state.sum()).movedim(1, 3).flatten(1, 2)
    return result[:, :length]
