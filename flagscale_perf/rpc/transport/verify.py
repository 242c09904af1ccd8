"""Whether a product that somebody else computed is right, for a small part of what it costs to compute it.

Freivalds' check: where C = A B, A (B v) and C v are equal for every v; where C is wrong, they are equal for
at most half of all v of -1 and 1. Products in floating point are never equal to the last bit:
the difference is held against what rounding can make of the sums, so an error within rounding is not seen.
"""

from __future__ import annotations

import torch

ROUNDING = 8.0  # times the rounding of one such number: above what right products were seen to have
_WIDE = torch.float64


def is_product(
    product: torch.Tensor, left: torch.Tensor, right: torch.Tensor, rounds: int = 2, seed: int | None = None
) -> bool:
    """Whether `product` is `left @ right`, as far as rounding lets one say.

    Args:
        product: of shape (..., m, n), as it came.
        left: of shape (..., m, k).
        right: of shape (..., k, n).
        rounds: of a wrong product each misses at most half.
        seed: for a test; None for chance that the other side cannot foresee.
    """
    if product.shape != (*left.shape[:-1], right.shape[-1]):
        return False
    chance = torch.Generator()
    if seed is None:
        chance.seed()
    else:
        chance.manual_seed(seed)
    # The lengths of rows, once; that of B follows from B v in the mean, without a pass over B more.
    rows = torch.linalg.vector_norm(left, dim=-1).to(_WIDE)
    unit = max(torch.finfo(each.dtype).eps for each in (product, left, right))
    for _ in range(rounds):
        vector = torch.randint(0, 2, (right.shape[-1],), generator=chance) * 2 - 1
        across = right @ vector.to(right.device, right.dtype)
        expected = (left @ across.unsqueeze(-1)).squeeze(-1).to(_WIDE)
        found = (product @ vector.to(product.device, product.dtype)).to(_WIDE)
        allowed = ROUNDING * unit * rows * across.to(_WIDE).norm(dim=-1, keepdim=True)
        if not bool(((found - expected).abs() <= allowed).all()):  # what is no number is not below anything
            return False
    return True
