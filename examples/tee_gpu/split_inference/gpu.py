"""How the protected side reaches the GPU side, in whichever process it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

Argument = int | float | str | bool | list[Any]


class Ask(NamedTuple):
    """A call to be made."""

    method: str
    tensors: Sequence[Tensor]
    arguments: Mapping[str, Argument]


class Pending(Protocol):
    """A call that is under way."""

    def result(self) -> list[Tensor]:
        """Waits. What it returns is to be read, and only until the next call."""


class Gpu(Protocol):
    """The GPU side.

    Attributes:
        description: of its model, as JSON.
    """

    description: str

    def buffer(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Memory to write an argument of the next call to, so that it need not be copied."""

    def submit(self, ask: Ask) -> Pending:
        """Begins a call."""
