"""How the protected side reaches the GPU side: the interface, and one in the same process."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from flagscale_perf.rpc.traffic import CallTraffic
from torch import Tensor

from .gpu_side import Argument, GpuSide, Work
from .methods import METHODS


class Ask(NamedTuple):
    """A call to be made."""

    method: str
    tensors: Sequence[Tensor]
    arguments: Mapping[str, Argument]


class Pending(Protocol):
    """A call that is under way."""

    def result(self) -> list[Tensor]:
        """Waits. What it returns is to be read, and only until `release`."""

    def release(self) -> None:
        """The results are used."""


class Gpu(Protocol):
    """The GPU side."""

    description: str

    def buffer(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Memory to write an argument of the next call to, so that it need not be copied."""

    def submit(self, ask: Ask) -> Pending:
        """Begins a call."""


class LocalGPU:
    """The GPU side in this process, with the same methods: what the split costs without a transport.

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
        METHODS[ask.method].run(self._side, work)
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
