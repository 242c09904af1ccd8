"""One symbolic forward pass over a `Shape`: every matrix product with its component, phase and unit.

A multiply-add counts 2 FLOPs. A linear layer y = xW costs 2 * in * out for each row in the forward pass, and
the same again for each gradient that is needed: of W if W is trained, of x if anything before it is trained.
So there are no tensors: every part takes and returns one bool, "a gradient flows through this tensor". Norms,
softmax, rotary embedding, activations, biases, embedding lookup, loss and optimizer are not counted: they are
not products of matrices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from flagscale_perf.flops.shape import Shape


class Unit(NamedTuple):
    """What a cost is multiplied by.

    Attributes:
        kind: "token", "expert_row" (a token at one of its routed experts) or "pair" (of query and key).
        window_left: of a pair: keys visible before the query's own, -1 for all.
    """

    kind: str
    window_left: int = -1


TOKEN = Unit("token")
EXPERT_ROW = Unit("expert_row")
PHASES = ("fwd", "bwd", "recompute")


class Term(NamedTuple):
    """What a cost belongs to: a component, a phase of `PHASES`, and the unit that it is for."""

    component: str
    phase: str
    unit: Unit


class Weight(NamedTuple):
    """The matrix of a linear layer.

    Attributes:
        component: the name that its products count under.
        n_in, n_out: its sides.
        module: Megatron-Core's name of the layer, by which adapters are attached; "" if it cannot have one.
        bias: whether there is one.
        copies: the number of routed experts that have such a matrix.
        unit: what is multiplied by it.
    """

    component: str
    n_in: int
    n_out: int
    module: str = ""
    bias: bool = False
    copies: int = 1
    unit: Unit = TOKEN


class Tape:
    """Collects FLOPs per unit and the number of parameters while a family's function walks through the model.

    Attributes:
        shape: the model.
        flops: FLOPs for one unit of each term.
        parameters: weights so far, biases and norms included.
        trained: whether the weights of the present layer get a gradient.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.flops: Counter[Term] = Counter()
        self.parameters = 0
        self._prefix = ""
        self._repeats = 0
        self.trained = self.is_trained("")

    @contextmanager
    def layer(self, name: str, prefix: str = "", repeated: bool = False) -> Iterator[None]:
        """One layer.

        Args:
            name: its name in `Shape.frozen`.
            prefix: goes before the names of its components.
            repeated: whether the whole layer is recomputed.
        """
        before = self._prefix, self._repeats, self.trained
        self._prefix, self.trained = prefix, self.is_trained(name)
        self._repeats += repeated
        yield
        self._prefix, self._repeats, self.trained = before

    @contextmanager
    def recomputed(self, *modules: str) -> Iterator[None]:
        """A part that is recomputed if one of `modules` is chosen; a part within it may be so once more."""
        extra = any(module in self.shape.recompute.modules for module in modules)
        self._repeats += extra
        yield
        self._repeats -= extra

    def is_trained(self, name: str) -> bool:
        """Whether the weights called `name` (see `Shape.frozen`) get a gradient."""
        return self.shape.lora is None and name not in self.shape.frozen

    def norm(self, x: bool, width: int) -> bool:
        """A norm over `width`: not a product, but a trained one starts a gradient."""
        self.parameters += width * (2 if self.shape.norm_bias else 1)
        return x or self.trained

    def linear(self, weight: Weight, x: bool) -> bool:
        """A linear layer; `x`: whether a gradient flows through its input."""
        n_in, n_out = weight.n_in, weight.n_out
        self.parameters += weight.copies * (n_in * n_out + n_out * weight.bias)
        flops = 2 * n_in * n_out
        self.add(weight.component, weight.unit, fwd=flops, bwd=flops * (x + self.trained))
        lora = self.shape.lora
        if lora is None or weight.module not in lora.targets:
            return x or self.trained
        # W x + B A x: both adapters are trained; A's input gets a gradient only if x needs one.
        down, up = 2 * n_in * lora.dim, 2 * lora.dim * n_out
        self.parameters += weight.copies * lora.dim * (n_in + n_out)
        self.add("lora", weight.unit, fwd=down + up, bwd=down * (x + 1) + 2 * up)
        return True

    def attention(self, q: bool, k: bool, v: bool, layer: int, dims: tuple[int, int]) -> bool:
        """Q K^T and P V of all query heads; `dims`: the widths of a head's key and value.

        The gradients of Q K^T are those of q and k, the gradients of P V those of the scores and v.
        """
        scores, values = (2 * self.shape.heads * dim for dim in dims)
        unit = Unit("pair", self.shape.window_left(layer))
        self.add("core_attention", unit, fwd=scores + values, bwd=scores * (q + k) + values * ((q or k) + v))
        return q or k or v

    def add(self, component: str, unit: Unit, fwd: int, bwd: int) -> None:
        """Adds the cost of one unit; enclosing parts that are recomputed repeat the forward pass."""
        for phase, flops in zip(PHASES, (fwd, bwd, fwd * self._repeats), strict=True):
            self.flops[Term(self._prefix + component, phase, unit)] += flops
