"""The GPU side in the same process, with the same methods: the numbers and bytes without a transport."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from split_inference.gpu import Ask
from split_inference.gpu_side import GpuSide, Work
from split_inference.methods import METHODS
from split_inference.traffic import CallTraffic
from torch import Tensor


class LocalGPU:
    """A `Gpu`.

    Attributes:
        traffic: the bytes of every call, as a client would log them.
    """

    def __init__(self, side: GpuSide) -> None:
        self.description = side.describe()
        self.traffic: list[CallTraffic] = []
        self._side = side

    def buffer(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype)

    def submit(self, ask: Ask) -> _Done:
        """Runs it at once."""
        work = Work(self._side, ask.tensors, ask.arguments, lambda dtype, shape: self.buffer(shape, dtype))
        METHODS[ask.method](self._side, work)
        results = work.finish()
        self.traffic.append(CallTraffic(ask.method, _bytes(ask.tensors), _bytes(results)))
        return _Done(results)


class _Done:
    def __init__(self, results: list[Tensor]) -> None:
        self._results = results

    def result(self) -> list[Tensor]:
        return self._results


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
