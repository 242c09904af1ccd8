"""Counts every matrix product and convolution that reaches the dispatcher, from the shapes of its operands.

It knows no formula. A product belongs to the module that asked for it on the way forward, or to the module
whose forward made the autograd node that asks for it on the way back. torch's own FlopCounterMode cannot
stand in for it: its backward pass of a depthwise convolution is too large by the number of channels.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten
# The packet and where its left operand stands; the right one follows it.
PRODUCTS = {
    aten.mm: 0,
    aten.bmm: 0,
    aten.addmm: 1,
    aten.baddbmm: 1,
    aten.mv: 0,
    aten.dot: 0,
    aten.addmv: 1,
}
PHASES = ("fwd", "bwd", "recompute")
UNCOUNTED = ""  # the component of products that are no model's work: rotary angles

Naming = Callable[[str], str | None]


class Counter(TorchDispatchMode):
    """Books 2 for each multiply-add under the component and phase it belongs to.

    Attributes:
        counts: component -> phase -> FLOPs.
        in_backward: set by who drives the model; a module that runs forward then is recomputed.
        unattributed: FLOPs that no component asked for.
    """

    def __init__(self, model: torch.nn.Module, component_of: Naming) -> None:
        """`component_of`: from a module's path to the component of its own products; None: its parent's."""
        super().__init__()
        self.counts: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(PHASES, 0))
        self.in_backward = False
        self.unattributed = 0
        self._stack: list[str] = []
        for path, module in model.named_modules():
            component = component_of(path)
            if component is not None:
                module.register_forward_pre_hook(self._entering(component), with_kwargs=True)
                module.register_forward_hook(self._leaving)

    def name_of_call(self, component: str) -> str:
        """What a call of a module of this component counts under."""
        return component

    def _entering(self, component: str):
        def hook(module, inputs, named):
            if self._stack:  # what the module around it has made so far is not this one's
                mark((*inputs, *named.values()), self._stack[-1])
            self._stack.append(self.name_of_call(component))

        return hook

    def _leaving(self, module, inputs, output) -> None:
        mark(output, self._stack.pop())

    @contextmanager
    def part(self, component: str, *given: torch.Tensor) -> Iterator[list]:
        """Products within belong to `component`. `given` goes in; put what comes out into the list."""
        if self._stack:
            mark(given, self._stack[-1])
        made: list = []
        self._stack.append(component)
        yield made
        self._stack.pop()
        mark(made, component)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        packet = func.overloadpacket
        first = PRODUCTS.get(packet)
        result = func(*args, **(kwargs or {}))
        if first is not None:
            left, right = args[first].shape, args[first + 1].shape
            self._book(2 * math.prod(left) * (right[-1] if len(right) > 1 else 1))
        elif packet is aten.convolution:
            self._book(_convolution(result.shape, args[1].shape))
        elif packet is aten.convolution_backward:
            wanted = args[-1] if "output_mask" not in (kwargs or {}) else kwargs["output_mask"]
            self._book(_convolution(args[0].shape, args[2].shape) * (wanted[0] + wanted[1]))
        elif packet in flop_registry:
            raise NotImplementedError(f"{func}: a product that this counter cannot read")
        return result

    def _book(self, flops: int) -> None:
        if self._stack:
            self._add(self._stack[-1], "recompute" if self.in_backward else "fwd", flops)
            return
        node = torch._C._current_autograd_node()
        component = node.metadata.get("component") if node is not None else None
        if component is None:
            self.unattributed += flops
        else:
            self._add(component, "bwd", flops)

    def _add(self, component: str, phase: str, flops: int) -> None:
        if component != UNCOUNTED:
            self.counts[component][phase] += flops


def mark(output, component: str) -> None:
    """Writes the component into the autograd nodes that made these tensors, as far as nobody did before."""
    tensors = output.values() if isinstance(output, dict) else output
    tensors = tensors if isinstance(output, (dict, tuple, list)) else (tensors,)
    todo = [each.grad_fn for each in tensors if isinstance(each, torch.Tensor) and each.grad_fn is not None]
    while todo:
        node = todo.pop()
        if "component" not in node.metadata:
            node.metadata["component"] = component
            todo += [child for child, _ in node.next_functions if child is not None]


def _convolution(output, weight) -> int:
    """Of one pass: each number that comes out is a sum over a kernel and the channels of its group."""
    return 2 * math.prod(output) * math.prod(weight[1:])
