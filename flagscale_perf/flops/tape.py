"""One symbolic forward pass over a `Shape`: every matrix product with its component, phase and unit, no
tensor.

A product counts 2 FLOPs for one multiply-add. A linear layer y = xW costs 2 * in * out for each row on the
way forward, and the same again for each gradient somebody needs: of W if W is trained, of x if anything
before it is trained. So every part takes and returns one bool: "a gradient flows through this tensor". Not
counted, as no product of matrices: norms, softmax, rotary embedding, activations, biases, embedding lookup,
loss, optimizer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from flagscale_perf.flops.shape import Shape


class Unit(NamedTuple):
    """What a coefficient is multiplied by: "token", "expert_row" (a token at one routed expert) or "pair"
    (query, key).

    Attributes:
        kind: see above.
        window_left: of a pair: keys visible before the query's own, -1 for all.
    """

    kind: str
    window_left: int = -1


TOKEN = Unit("token")
EXPERT_ROW = Unit("expert_row")
PHASES = ("fwd", "bwd", "recompute")


class Term(NamedTuple):
    """Key of a coefficient: what, when, for each of what."""

    component: str
    phase: str
    unit: Unit


class Weight(NamedTuple):
    """The matrix of a linear layer.

    Attributes:
        component: under which name its products count.
        n_in, n_out: its sides.
        module: Megatron-Core's name of the layer, which adapters are targeted by; "" if it cannot have one.
        bias: it has one.
        copies: routed experts that hold one each.
        unit: what passes through it.
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
        flops: FLOPs for one unit of a term.
        parameters: weights so far, biases and norms included.
        trained: the weights of the layer being walked through get a gradient.
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
        """One layer: `name` says whether it is frozen, `prefix` goes before its components, `repeated`
        recomputes it whole.
        """
        before = self._prefix, self._repeats, self.trained
        self._prefix, self.trained = prefix, self.is_trained(name)
        self._repeats += repeated
        yield
        self._prefix, self._repeats, self.trained = before

    @contextmanager
    def recomputed(self, *modules: str) -> Iterator[None]:
        """A part that selective recomputation repeats if any of `modules` is chosen; nested parts are
        repeated once each.
        """
        extra = any(module in self.shape.recompute.modules for module in modules)
        self._repeats += extra
        yield
        self._repeats -= extra

    def is_trained(self, name: str) -> bool:
        """Whether the weights called `name` (see `Shape.frozen`) get a gradient themselves."""
        return self.shape.lora is None and name not in self.shape.frozen

    def norm(self, x: bool, width: int) -> bool:
        """A norm over `width`: no product, but a trained one lets a gradient start here."""
        self.parameters += width * (2 if self.shape.norm_bias else 1)
        return x or self.trained

    def linear(self, weight: Weight, x: bool) -> bool:
        """A linear layer; `x`: a gradient flows through its input."""
        n_in, n_out = weight.n_in, weight.n_out
        self.parameters += weight.copies * (n_in * n_out + n_out * weight.bias)
        flops = 2 * n_in * n_out
        self.add(weight.component, weight.unit, fwd=flops, bwd=flops * (x + self.trained))
        lora = self.shape.lora
        if lora is None or weight.module not in lora.targets:
            return x or self.trained
        # W x + B A x: both adapters are trained, A's input gradient only where somebody needs it.
        down, up = 2 * n_in * lora.dim, 2 * lora.dim * n_out
        self.parameters += weight.copies * lora.dim * (n_in + n_out)
        self.add("lora", weight.unit, fwd=down + up, bwd=down * (x + 1) + 2 * up)
        return True

    def attention(self, q: bool, k: bool, v: bool, layer: int, dims: tuple[int, int]) -> bool:
        """Q K^T and P V of all query heads; `dims` are a head's widths of key and value.

        Gradients: Q K^T gives one to q and one to k, P V one to the scores and one to v.
        """
        scores, values = (2 * self.shape.heads * dim for dim in dims)
        unit = Unit("pair", self.shape.window_left(layer))
        self.add("core_attention", unit, fwd=scores + values, bwd=scores * (q + k) + values * ((q or k) + v))
        return q or k or v

    def add(self, component: str, unit: Unit, fwd: int, bwd: int) -> None:
        """Books a product of one unit; recomputation repeats the way forward as often as the enclosing parts
        say.
        """
        for phase, flops in zip(PHASES, (fwd, bwd, fwd * self._repeats), strict=True):
            self.flops[Term(self._prefix + component, phase, unit)] += flops
