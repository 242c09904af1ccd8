"""What the protected side computes itself, in the order and precision of transformers' own models, so that
bfloat16 comes out the same bit for bit; each writes where the next call takes its arguments from.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

CHUNK = 2**18  # items worked on at a time: they stay in the processor's cache


def rms_norm(x: Tensor, weight: Tensor, epsilon: float, out: Tensor) -> Tensor:
    """Root mean square norm of the last dimension; `out` may not be `x`."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
    return torch.mul(weight, wide.to(x.dtype), out=out)


def rotate_into(out: Tensor, x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotary positions: the two halves of a head are the two parts of a complex number."""
    half = x.shape[-1] // 2
    torch.mul(x, cos, out=out)
    out[..., :half] -= x[..., half:] * sin[..., :half]
    out[..., half:] += x[..., :half] * sin[..., half:]


def masked_softmax(scores: Tensor, scaling: float, mask: Tensor | None, out: Tensor) -> Tensor:
    """Attention probabilities of (batch, heads, tokens, seen) scores, computed in float32."""
    heads = scores.shape[1]
    step = max(1, CHUNK // (scores.shape[2] * scores.shape[3]))
    for row, into in zip(scores, out, strict=True):
        for first in range(0, heads, step):
            part, result = row[first : first + step], into[first : first + step]
            scaled = part * scaling
            if mask is not None:
                scaled += mask
            if out.dtype == torch.float32:
                torch.softmax(scaled, -1, out=result)
            else:
                result.copy_(torch.softmax(scaled, -1, dtype=torch.float32))
    return out


def causal_mask(new: int, seen: int, dtype: torch.dtype) -> Tensor | None:
    """To be added to the scores of the last `new` of `seen` tokens; None for one token, which sees all."""
    if new == 1:
        return None
    low = torch.full((new, seen), torch.finfo(dtype).min, dtype=dtype)
    return low.triu_(seen - new + 1)


def gated(gate: Tensor, up: Tensor, activation: Callable[[Tensor], Tensor], out: Tensor) -> Tensor:
    """activation(gate) * up."""
    rows = gate.reshape(-1, gate.shape[-1]), up.reshape(-1, up.shape[-1]), out.view(-1, out.shape[-1])
    step = max(1, CHUNK // gate.shape[-1])
    for first in range(0, rows[0].shape[0], step):
        one, other, into = (part[first : first + step] for part in rows)
        torch.mul(activation(one), other, out=into)
    return out
