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
from typing import NamedTuple, TypeVar

from flagscale_perf.flops.shape import OUTSIDE_LANGUAGE_MODEL, Shape
from flagscale_perf.flops.step import Measure
from flagscale_perf.flops.units import TOKEN, ChunkRow, Pair, Unit
from flagscale_perf.spine.errors import PerfError

CORE_FORMS = ("recurrent", "chunked", "megatron")
PHASES = ("fwd", "bwd", "recompute")
Sizes = TypeVar("Sizes")


def needed(sizes: Sizes | None, arguments: str) -> Sizes:
    """The sizes of a block. Raises PerfError, naming the arguments that give them, if the shape has none."""
    if sizes is None:
        raise PerfError(f"model: this family needs {arguments}")
    return sizes


class Term(NamedTuple):
    """The place of a cost: a component, a phase of `PHASES`, and the unit that it is counted for."""

    component: str
    phase: str
    unit: Unit

    def in_step(self, measure: Measure, per_unit: int) -> int:
        """FLOPs of the step if each unit costs `per_unit`, which is even: a multiply-add is 2 FLOPs."""
        return per_unit * self.unit.doubled(measure) // 2


class Weight(NamedTuple):
    """The matrix of a linear layer.

    Attributes:
        component: the name that its products count under.
        n_in, n_out: its sides.
        module: Megatron-Core's name of the layer, by which adapters are attached; "" if it cannot have one.
        bias: whether there is one.
        copies: the number of routed experts that have such a matrix.
        unit: what is multiplied by it; None for each row of the stream.
    """

    component: str
    n_in: int
    n_out: int
    module: str = ""
    bias: bool = False
    copies: int = 1
    unit: Unit | None = None


class Core(NamedTuple):
    """The products of a state-space or delta-rule layer beside its projections and its convolution.

    Attributes:
        recurrent: of one token, by the recurrence itself: into the state, out of it, and its correction.
        chunked: of one token of a chunk: what kernels multiply that work chunk by chunk; None if unknown.
        chunk: tokens of one.
        restarts: packed documents begin chunks of their own.
        megatron: of one token, what Megatron-LM takes for it; None where it has no formula.
    """

    recurrent: int
    chunked: int | None
    chunk: int
    restarts: bool
    megatron: int | None


class Tape:
    """Collects FLOPs per unit and the number of parameters while a family's function walks through the model.

    Attributes:
        shape: the model.
        core_form: which products count for the core of a recurrent layer, of `CORE_FORMS`.
        flops: FLOPs for one unit of each term.
        parameters: weights so far, biases and norms included.
        trained: whether the weights of the present layer get a gradient.
        known: False where the form has no formula for a core of this model.
    """

    def __init__(self, shape: Shape, core_form: str = "recurrent") -> None:
        self.shape = shape
        self.core_form = core_form
        self.flops: Counter[Term] = Counter()
        self.parameters = 0
        self.known = True
        self._stream = self._prefix = ""
        self._row: Unit = TOKEN
        self._pairs: Unit | None = None
        self._used = True
        self._repeated_parts: list[list[tuple[Term, int, int]]] = []
        self.trained = self.is_trained("")
        self._adapted = self._is_free("")  # adapters of the present layer get a gradient

    @contextmanager
    def stream(self, prefix: str, row: Unit, pairs: Unit) -> Iterator[None]:
        """A part of the model with its own sequence, such as an encoder.

        Args:
            prefix: goes before the names of its components.
            row: what passes through its linear layers.
            pairs: what its attention multiplies.
        """
        before = self._stream, self._prefix, self._row, self._pairs
        self._stream = self._prefix = prefix
        self._row, self._pairs = row, pairs
        yield
        self._stream, self._prefix, self._row, self._pairs = before

    @contextmanager
    def seeing(self, pairs: Unit) -> Iterator[None]:
        """A part whose attention multiplies these pairs."""
        before, self._pairs = self._pairs, pairs
        yield
        self._pairs = before

    @contextmanager
    def layer(self, name: str, prefix: str = "", repeated: bool = False, used: bool = True) -> Iterator[None]:
        """One layer.

        Args:
            name: its name in `Shape.frozen`.
            prefix: goes before the names of its components, behind the stream's.
            repeated: whether the whole layer is recomputed.
            used: False for a layer whose output is not read, so that no gradient comes back to it.
        """
        before = self._prefix, self._used, self.trained, self._adapted
        self._prefix, self._used, self.trained = self._stream + prefix, used, self.is_trained(name)
        self._adapted = self._is_free(name)
        with self._repeated(int(repeated)):
            yield
        self._prefix, self._used, self.trained, self._adapted = before

    def layers(self) -> Iterator[int]:
        """The decoder's layers, one after another: what is added until the next one belongs to that one."""
        for part, repeated in self.shape.recompute.parts(self.shape.layers):
            with self._repeated(int(repeated)):
                for layer in part:
                    with self.layer(f"layers.{layer}"):
                        yield layer

    @contextmanager
    def recomputed(self, *modules: str) -> Iterator[None]:
        """A part that is recomputed if one of `modules` is chosen; a part within it may be so once more."""
        with self._repeated(int(any(module in self.shape.recompute.modules for module in modules))):
            yield

    @contextmanager
    def _repeated(self, times: int) -> Iterator[None]:
        # A part that no gradient comes back through is not recomputed, and what is in it says so at its end.
        if not times:
            yield
            return
        part: list[tuple[Term, int, int]] = []
        self._repeated_parts.append(part)
        yield
        self._repeated_parts.pop()
        if any(bwd for _, _, bwd in part):
            for term, fwd, _ in part:
                self.flops[term] += fwd

    @property
    def row(self) -> Unit:
        """The unit that linear layers process at present."""
        return self._row

    def is_trained(self, name: str) -> bool:
        """Whether the weights called `name` (see `Shape.frozen`) get a gradient."""
        return self.shape.lora is None and self._is_free(name)

    def _is_free(self, name: str) -> bool:
        frozen = self.shape.frozen
        with_language_model = name not in OUTSIDE_LANGUAGE_MODEL and "language_model" in frozen
        return name not in frozen and not with_language_model

    def norm(self, x: bool, width: int, bias: bool | None = None) -> bool:
        """A norm over `width`: not a product, but a trained one starts a gradient.

        `bias`: whether it has one; None for as the shape's norms.
        """
        self.parameters += width * (2 if (self.shape.norm_bias if bias is None else bias) else 1)
        return x or self.trained

    def linear(self, weight: Weight, x: bool) -> bool:
        """A linear layer; `x`: whether a gradient flows through its input."""
        n_in, n_out = weight.n_in, weight.n_out
        self.parameters += weight.copies * (n_in * n_out + n_out * weight.bias)
        flops = 2 * n_in * n_out
        unit = weight.unit or self._row
        self.add(weight.component, unit, fwd=flops, bwd=flops * (x + self.trained))
        lora = self.shape.lora
        if lora is None or weight.module not in lora.targets:
            return x or self.trained
        # W x + B A x: both adapters are trained, or frozen with the layer that they are in. B's input gets a
        # gradient if anything before it needs one, A's only if x does.
        down, up = 2 * n_in * lora.dim, 2 * lora.dim * n_out
        self.parameters += weight.copies * lora.dim * (n_in + n_out)
        adapted = self._adapted
        self.add("lora", unit, fwd=down + up, bwd=down * (x + adapted) + up * (adapted + (x or adapted)))
        return x or adapted

    def detached(self, weight: Weight, trained: bool) -> None:
        """A linear layer whose input passes no gradient on, trained by a loss of its own or not at all."""
        self.parameters += weight.n_in * weight.n_out
        flops = 2 * weight.n_in * weight.n_out
        self.add(weight.component, weight.unit or self._row, fwd=flops, bwd=flops * trained)

    def pairs(self, layer: int) -> Unit:
        """The unit in which attention of this layer counts: pairs of a query and a key."""
        return self._pairs or Pair(self.shape.window_left(layer))

    def attention(self, q: bool, k: bool, v: bool, pairs: Unit, widths: tuple[int, int]) -> bool:
        """Q K^T and P V; `widths`: those of key and value, all query heads together.

        The gradients of Q K^T are those of q and k, the gradients of P V those of the scores and v.
        """
        scores, values = (2 * width for width in widths)
        self.add("core_attention", pairs, fwd=scores + values, bwd=scores * (q + k) + values * ((q or k) + v))
        return q or k or v

    def conv(self, component: str, channels: int, kernel: int, x: bool) -> bool:
        """A depthwise convolution along the sequence: each channel with a kernel of its own."""
        self.parameters += channels * kernel
        flops = 2 * channels * kernel
        self.add(component, self._row, fwd=flops, bwd=flops * (x + self.trained))
        return x or self.trained

    def core(self, component: str, core: Core, x: bool) -> bool:
        """The core of a recurrent layer, in the form of this tape; it has no weights in its products."""
        unit, flops = self._row, core.recurrent
        if self.core_form == "chunked":
            self.known &= core.chunked is not None
            unit, flops = ChunkRow(core.chunk, core.restarts), core.chunked or 0
        elif self.core_form == "megatron":
            self.known &= core.megatron is not None
            flops = core.megatron or 0
        self.add(component, unit, fwd=flops, bwd=2 * flops * x)
        return x

    def add(self, component: str, unit: Unit, fwd: int, bwd: int) -> None:
        """Adds the cost of one unit; enclosing parts that are recomputed repeat the forward pass."""
        bwd = bwd if self._used else 0
        terms = [Term(self._prefix + component, phase, unit) for phase in PHASES]
        for term, flops in zip(terms, (fwd, bwd, 0), strict=True):
            self.flops[term] += flops
        for part in self._repeated_parts:
            part.append((terms[-1], fwd, bwd))

    def total(self, measure: Measure, *phases: str) -> int:
        """FLOPs of the step in these phases, all components together."""
        return sum(
            term.in_step(measure, per_unit) for term, per_unit in self.flops.items() if term.phase in phases
        )
