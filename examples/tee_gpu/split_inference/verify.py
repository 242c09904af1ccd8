"""Freivalds' check of products that come from the GPU side: a product times a secret vector of +1 and -1 must
be the left factor times what the right one gives with it. A column of work instead of a matrix.

An error larger than what rounding explains is found with a probability of at least one half in every row of
every product; a smaller one is not. What is no product (`MLP`, attention, whole layers) cannot be checked.
"""

from __future__ import annotations

import secrets
from typing import Any

import torch
from torch import Tensor

from flagscale_perf.spine.errors import PerfError

from .gpu import Ask
from .methods import LINEARS

_ALLOWED = 32  # roundings, of the norm of what is summed


class WrongProduct(PerfError):
    """The GPU side returned something that is not the product."""


class Verifier:
    """Checks calls with a copy of the weights that this side trusts.

    Attributes:
        checked: products, so far.
    """

    def __init__(self, model: Any) -> None:
        self.checked = 0
        self._model = model
        self._random = torch.Generator().manual_seed(secrets.randbits(63))
        self._signs: dict[tuple[int, torch.dtype], Tensor] = {}
        self._weights: dict[str, Tensor] = {}

    def check(self, ask: Ask, results: list[Tensor]) -> None:
        """Raises `WrongProduct`."""
        if ask.method == "Matmul":
            self._check_matmul(ask, results[0])
            return
        for name, result in zip(self._linears(ask), results, strict=False):
            self._compare(ask, ask.tensors[0], result, self._weight(name, result))

    def _linears(self, ask: Ask) -> list[str]:
        if ask.method == "LMHead":
            return ["lm_head"]
        if ask.method != "BatchLinear":
            return []
        layer = ask.arguments["layer"]
        return [f"model.layers.{layer}.{path}" for path in LINEARS[str(ask.arguments["weights"])]]

    def _weight(self, name: str, result: Tensor) -> Tensor:
        """What a linear's weights give with the secret vector; computed once."""
        known = self._weights.get(name)
        if known is None:
            weight = self._model.get_submodule(name).weight
            known = weight.float().t() @ self._sign(result).float()
            self._weights[name] = known
        return known

    def _check_matmul(self, ask: Ask, result: Tensor) -> None:
        left, right = ask.tensors
        shared = right.shape[:2]  # heads of the left that share one of the right are its rows
        right = right.transpose(2, 3) if ask.arguments.get("transposed") else right
        vector = right.float() @ self._sign(result).float()
        left = left.reshape(*shared, -1, left.shape[-1])
        self._compare(ask, left, result.reshape(*shared, -1, result.shape[-1]), vector[..., None])

    def _compare(self, ask: Ask, left: Tensor, product: Tensor, vector: Tensor) -> None:
        wide = left.float()
        expected = wide @ vector if vector.dim() == 1 else (wide @ vector).squeeze(-1)
        found = product.float() @ self._sign(product).float()
        norms = product.norm(dim=-1, dtype=torch.float32) + wide.norm(dim=-1) * vector.norm(dim=0).max()
        allowed = _ALLOWED * torch.finfo(product.dtype).eps * norms
        self.checked += 1
        wrong = ~((found - expected).abs() <= allowed)  # so that NaN is wrong, too
        if bool(wrong.any()):
            raise WrongProduct(
                f"{ask.method} {dict(ask.arguments)}: {int(wrong.sum())} of {wrong.numel()} rows are not the "
                "product of what was sent; the GPU side computes wrongly, or other weights"
            )

    def _sign(self, like: Tensor) -> Tensor:
        key = like.shape[-1], like.dtype
        if key not in self._signs:
            bits = torch.randint(0, 2, (key[0],), generator=self._random)
            self._signs[key] = (2 * bits - 1).to(like.dtype)
        return self._signs[key]
