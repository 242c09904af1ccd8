"""Keys and values of earlier tokens, on the protected side."""

from __future__ import annotations

from itertools import count

import torch
from torch import Tensor

from split_inference.traffic import ModelSizes

_sequences = count()


class KvCache:
    """Of one batch of sequences. With `fused_layer` the GPU side holds the keys and values, and this only
    their number.

    Attributes:
        tokens: so far.
        sequence: its number at the GPU side.
    """

    def __init__(self, sizes: ModelSizes, batch: int, capacity: int, dtype: torch.dtype) -> None:
        self.tokens = 0
        self.sequence = next(_sequences)
        self._shape = (batch, sizes.kv_heads, capacity, sizes.head_dim)
        self._dtype = dtype
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def room(self, layer: int, new: int) -> tuple[Tensor, Tensor]:
        """Where the next `new` tokens' keys and values go."""
        end = self.tokens + new
        if layer not in self._layers:
            self._layers[layer] = self._memory(), self._memory()
        if end > self._shape[2]:
            self._grow(end)
        keys, values = self._layers[layer]
        return keys[:, :, self.tokens : end], values[:, :, self.tokens : end]

    def seen(self, layer: int, new: int) -> tuple[Tensor, Tensor]:
        """Keys and values of all tokens, the `new` ones included."""
        keys, values = self._layers[layer]
        return keys[:, :, : self.tokens + new], values[:, :, : self.tokens + new]

    def _memory(self) -> Tensor:
        return torch.empty(self._shape, dtype=self._dtype)

    def _grow(self, needed: int) -> None:
        old = self._shape[2]
        self._shape = (*self._shape[:2], max(needed, 2 * old), self._shape[3])
        for layer, pair in self._layers.items():
            grown = self._memory(), self._memory()
            for new, kept in zip(grown, pair, strict=True):
                new[:, :, :old] = kept
            self._layers[layer] = grown
