"""The GPU side in the same process, with the same methods: what the split costs without a transport."""

from __future__ import annotations

import math
from collections import defaultdict
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
        self._pool = _Pool()

    def buffer(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Memory used before, where there is some of that size."""
        return self._pool.take(dtype, tuple(shape))

    def submit(self, ask: Ask) -> _Done:
        """Runs it at once."""
        work = Work(self._side, ask.tensors, ask.arguments, self._pool.take)
        METHODS[ask.method](self._side, work)
        results = work.finish()
        self.traffic.append(CallTraffic(ask.method, _bytes(ask.tensors), _bytes(results)))
        return _Done(results, ask.tensors, self._pool)


class _Done:
    def __init__(self, results: list[Tensor], arguments: Sequence[Tensor], pool: _Pool) -> None:
        self._results = results
        self._arguments = arguments
        self._pool = pool

    def result(self) -> list[Tensor]:
        return self._results

    def release(self) -> None:
        for tensor in (*self._results, *self._arguments):
            self._pool.give(tensor)


class _Pool:
    """Memory that is used again: the system clears fresh pages, which costs more than to copy into them."""

    def __init__(self) -> None:
        self._free: defaultdict[int, list[Tensor]] = defaultdict(list)
        self._lent: dict[int, Tensor] = {}

    def take(self, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        size = math.prod(shape) * dtype.itemsize
        free = self._free[size]
        memory = free.pop() if free else torch.empty(size, dtype=torch.uint8)
        self._lent[memory.data_ptr()] = memory
        return memory.view(dtype).view(shape)

    def give(self, tensor: Tensor) -> None:
        memory = self._lent.pop(tensor.data_ptr(), None)
        if memory is not None:
            self._free[memory.nbytes].append(memory)


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
