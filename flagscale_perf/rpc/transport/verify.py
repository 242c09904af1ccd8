"""Checks a product computed by another party, for a fraction of the cost of computing it.

Freivalds' check: where C = A B, A (B v) and C v are equal for every v; where C is wrong, they are equal for
at most half of all v of -1 and 1. Products in floating point are never equal to the last bit:
the difference is held against what rounding can make of the sums, so an error within rounding is not seen.
"""

from __future__ import annotations

import torch

ROUNDING = 8.0  # times the rounding of what is summed: above what right products were seen to have


def is_product(
    product: torch.Tensor, left: torch.Tensor, right: torch.Tensor, rounds: int = 2, seed: int | None = None
) -> bool:
    """Whether `product` is `left @ right`, as far as rounding allows to tell.

    Args:
        product: of shape (..., m, n), as it came.
        left: of shape (..., m, k).
        right: of shape (..., k, n).
        rounds: of a wrong product each misses at most half.
        seed: for a test; None for chance that the other side cannot foresee.
    """
    chance = chance_of(seed)
    for _ in range(rounds):
        signs = signs_of(right.shape[-1], chance)
        if bool(wrong_rows(product, left, applied(right, signs), signs).any()):
            return False
    return True


def chance_of(seed: int | None = None) -> torch.Generator:
    """A source of random vectors that the other side cannot foresee, unless a test gives a seed."""
    chance = torch.Generator()
    if seed is None:
        chance.seed()
        return chance
    return chance.manual_seed(seed)


def signs_of(count: int, chance: torch.Generator) -> torch.Tensor:
    """A vector of -1 and 1."""
    return (torch.randint(0, 2, (count,), generator=chance) * 2 - 1).float()


def applied(right: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    """B v. It can be reused while B stays the same and v stays secret."""
    return _times(right, signs)


def wrong_rows(
    product: torch.Tensor, left: torch.Tensor, across: torch.Tensor, signs: torch.Tensor
) -> torch.Tensor:
    """True for each row of the product that cannot be A B.

    Args:
        product: C, of shape (..., m, n).
        left: A, of shape (..., m, k).
        across: B v, of shape (..., k) or (k,).
        signs: v, of n.
    """
    if product.shape != (*left.shape[:-1], len(signs)):
        return torch.ones(left.shape[:-1], dtype=torch.bool)
    unit = max(torch.finfo(each.dtype).eps for each in (product, left))
    difference = (_times(product, signs) - _times(left, across)).abs()
    # B v can be small by chance, and the entries of C were rounded all the same: both are summed.
    applied_length = _length(across) if across.dim() == 1 else _length(across).unsqueeze(-1)
    summed = _length(product) + _length(left) * applied_length
    return ~(difference <= ROUNDING * unit * summed)  # NaN compares false, so it counts as wrong


def _times(matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """Computed in the matrix's own type, as a wider copy would cost more than the product; but sums of
    float16 overflow.
    """
    if matrix.dtype is torch.float16:
        matrix = matrix.float()
    found = (matrix @ vector.to(matrix).unsqueeze(-1)).squeeze(-1)
    return found.to(torch.promote_types(found.dtype, torch.float32))


def _length(rows: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(rows, dim=-1, dtype=torch.promote_types(rows.dtype, torch.float32))
