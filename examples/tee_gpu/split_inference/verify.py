"""Freivalds' check of the products that come from the GPU side (`flagscale_perf.rpc.transport.verify`). What
the weights give with the secret vector is computed once, so a check is a column of work instead of a matrix.

An error larger than what rounding explains is found with a probability of at least one half in every row of
every product; a smaller one is not. What is no product (`MLP`, attention, whole layers) cannot be checked.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flagscale_perf.rpc.transport.verify import applied, chance_of, signs_of, wrong_rows
from flagscale_perf.spine.errors import PerfError

from .gpu import Ask
from .methods import LINEARS


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
        self._chance = chance_of()
        self._signs: dict[int, Tensor] = {}
        self._weights: dict[str, Tensor] = {}

    def check(self, ask: Ask, results: list[Tensor]) -> None:
        """Raises `WrongProduct`."""
        if ask.method == "Matmul":
            self._check_matmul(ask, results[0])
            return
        for name, result in zip(self._linears(ask), results, strict=False):
            self._compare(ask, *self._with_bias(name, ask.tensors[0], result))

    def _linears(self, ask: Ask) -> list[str]:
        if ask.method == "LMHead":
            return ["lm_head"]
        if ask.method != "BatchLinear":
            return []
        layer = ask.arguments["layer"]
        return [f"model.layers.{layer}.{path}" for path in LINEARS[str(ask.arguments["weights"])]]

    def _with_bias(self, name: str, left: Tensor, result: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What is multiplied, the product and the weight; a bias is one more row of weights, times 1."""
        across, bias = self._weight(name, result), self._model.get_submodule(name).bias
        if bias is None:
            return left, result, across
        ones = torch.ones_like(left[..., :1])
        last = applied(bias[None], self._sign(result))
        return torch.cat([left, ones], dim=-1), result, torch.cat([across, last])

    def _weight(self, name: str, result: Tensor) -> Tensor:
        """What a linear's weights give with the secret vector; computed once."""
        known = self._weights.get(name)
        if known is None:
            weight = self._model.get_submodule(name).weight
            known = self._weights[name] = applied(weight.t(), self._sign(result))
        return known

    def _check_matmul(self, ask: Ask, result: Tensor) -> None:
        left, right = ask.tensors
        shared = right.shape[:2]  # heads of the left that share one of the right are its rows
        right = right.transpose(2, 3) if ask.arguments.get("transposed") else right
        left = left.reshape(*shared, -1, left.shape[-1])
        across = applied(right, self._sign(result))
        self._compare(ask, left, result.reshape(*shared, -1, result.shape[-1]), across)

    def _compare(self, ask: Ask, left: Tensor, product: Tensor, across: Tensor) -> None:
        wrong = wrong_rows(product, left, across, self._sign(product))
        self.checked += 1
        if bool(wrong.any()):
            raise WrongProduct(
                f"{ask.method} {dict(ask.arguments)}: {int(wrong.sum())} of {wrong.numel()} rows are not the "
                "product of what was sent; the GPU side computes wrongly, or other weights"
            )

    def _sign(self, like: Tensor) -> Tensor:
        count = like.shape[-1]
        if count not in self._signs:
            self._signs[count] = signs_of(count, self._chance)
        return self._signs[count]
