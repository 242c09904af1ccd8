"""Counts what each operator computes and moves, by the module it runs for, while a step runs: with real
tensors or with fake ones, which have shapes and no memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from flagscale_perf.profile.costs import FREE, formula_of
from flagscale_perf.profile.prediction import Work
from flagscale_perf.profile.ranges import paths_of

_ASKING = frozenset({"prim", "profiler"})  # namespaces of what asks for a device, or opens a range
_NO_NUMBER = 1 << 62  # nodes that add up a gradient have a greater number than any operator


class Counted(TorchDispatchMode):  # type: ignore[misc]
    """Counts while it is entered. A node of the backward pass belongs to the module whose operator made it:
    both carry the same number.
    """

    def __init__(self, models: nn.Module | Sequence[nn.Module]) -> None:
        super().__init__()
        self._modules = paths_of(models)
        self._open: list[str] = []
        self._path_of_number: dict[int, str] = {}
        self._newest = 0  # number of the node that was made last
        self._path = ""  # of the node that ran last
        self._part = ""
        self._sums: dict[tuple[str, str, str], list[int]] = {}
        self._handles: list[Any] = []
        self._formulas: dict[Any, Callable[..., int] | None] = {}

    @property
    def work(self) -> list[Work]:
        """The work counted so far, in the order of first runs."""
        return [Work(*key, *sums) for key, sums in self._sums.items()]

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Counts what runs in this block under this part of the step."""
        before, self._part, self._path = self._part, name, ""
        try:
            yield
        finally:
            self._part = before

    def __enter__(self) -> Counted:
        for path, module in self._modules.items():
            self._handles.append(module.register_forward_pre_hook(self._opener(path), prepend=True))
            self._handles.append(module.register_forward_hook(self._close, always_call=True))
        super().__enter__()
        self._newest = _newest_number()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        out = func(*args, **named)
        if func.namespace in _ASKING:
            return out
        name = func.overloadpacket.__name__
        sums = self._sums.setdefault((self._part, self._module(), name), [0, 0, 0])
        sums[0] += 1
        sums[1] += self._flops(func.overloadpacket, args, named, out)
        if f"aten::{name}" not in FREE and not func.is_view:
            sums[2] += _moved(args, named, out)
        return out

    def _opener(self, path: str) -> Callable[..., None]:
        def before(module: nn.Module, args: Any) -> None:
            self._open.append(path)

        return before

    def _close(self, module: nn.Module, args: Any, output: Any) -> None:
        self._open.pop()

    def _module(self) -> str:
        node = torch._C._current_autograd_node()
        newest, path = _newest_number(), self._open[-1] if self._open else ""
        for number in range(self._newest + 1, newest + 1):  # made by this operator, and by no other
            self._path_of_number[number] = path
        self._newest = newest
        if self._open:
            return path
        if node is None:
            return ""
        number = node._sequence_nr()
        if number < _NO_NUMBER:
            self._path = self._path_of_number.get(number, "")
        return self._path

    def _flops(self, packet: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> int:
        if packet not in self._formulas:
            self._formulas[packet] = formula_of(str(packet).replace(".", "::", 1))
        formula = self._formulas[packet]
        return 0 if formula is None else formula(*args, **kwargs, out_val=out)


def _newest_number() -> int:
    number: int = torch.autograd._get_sequence_nr() - 1
    return number


def _moved(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> int:
    """Each input once, and each output; for an expanded tensor, the memory behind it."""
    inputs = {id(each): each for each in tree_leaves((args, dict(kwargs))) if isinstance(each, torch.Tensor)}
    outputs = [each for each in tree_leaves(out) if isinstance(each, torch.Tensor)]
    return sum(_size(each) for each in (*inputs.values(), *outputs))


def _size(tensor: torch.Tensor) -> int:
    size: int = tensor.numel() * tensor.element_size()
    if any(stride == 0 for stride in tensor.stride()):
        size = min(size, tensor.untyped_storage().nbytes())
    return size
