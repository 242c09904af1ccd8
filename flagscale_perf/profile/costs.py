"""The least that operators must compute and move, from the shapes of their arguments.

FLOPs are those of `torch.utils.flop_counter`, whose table an extension may add to; bytes are those of an
operator's inputs, and of what it has allocated and not freed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils import flop_counter

from flagscale_perf.profile.attribution import Attribution
from flagscale_perf.profile.events import Bools, Events, Ints
from flagscale_perf.profile.flight import bytes_of
from flagscale_perf.profile.memory import retained_of
from flagscale_perf.profile.records import Sort
from flagscale_perf.profile.rows import Key, operators_of

# They compute or move nothing: views of the same memory, or memory that is not initialised.
FREE = frozenset(
    f"aten::{name}"
    for name in (
        *("view", "reshape", "_unsafe_view", "as_strided", "t", "transpose", "permute", "expand"),
        *("expand_as", "unsqueeze", "squeeze", "slice", "select", "narrow", "split"),
        *("split_with_sizes", "chunk", "unbind", "detach", "detach_", "alias", "empty", "empty_like"),
        *("empty_strided", "new_empty", "new_empty_strided", "resize_", "resolve_conj"),
        *("resolve_neg", "lift_fresh", "view_as", "flatten", "unflatten", "_reshape_alias", "set_"),
        *("is_nonzero", "item", "contiguous"),
    )
)
# What these call is their implementation and is not counted as an operator of its own.
_WHOLE = frozenset(
    f"aten::{name}"
    for name in (
        *("sum", "mean", "native_layer_norm", "native_layer_norm_backward", "_softmax"),
        *("_log_softmax", "embedding_dense_backward", "cat", "index_select", "nll_loss_forward"),
        "nll_loss_backward",
    )
)
# What these call, if it has FLOPs of its own, is counted in their place: the time is there.
_CALLERS = frozenset(
    f"aten::{name}"
    for name in (
        *("_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2", "_scaled_mm", "_scaled_mm_v2"),
        *("mv", "convolution", "_convolution"),
    )
)
_WRITES_ONLY = frozenset({"aten::copy_", "aten::fill_", "aten::zero_"})
_NO_TENSOR = frozenset({"", "Scalar", "ScalarList", "TensorList"})
_Formula = Callable[..., int]
Shape = Sequence[int]


def _product(one: Shape, other: Shape, *_: Any, **__: Any) -> int:
    return 2 * prod(one) * other[-1]


def _product_added(_added: Shape, one: Shape, other: Shape, *_: Any, **__: Any) -> int:
    return _product(one, other)


def _grouped(one: Shape, other: Shape, *_: Any, **__: Any) -> int:
    """One product for each group; where a size is split among the groups, rows beyond the last group are
    counted, too: where it ends is not in the shapes.
    """
    return 2 * prod(one if len(other) == 3 else one[-2:]) * other[-1]


def _with_vector(matrix: Shape, *_: Any, **__: Any) -> int:
    return 2 * prod(matrix)


def _with_vector_added(_added: Shape, matrix: Shape, *_: Any, **__: Any) -> int:
    return 2 * prod(matrix)


def _by_rows(one: Shape, weight: Shape, *_: Any, **__: Any) -> int:
    """The weight has a row for each output; its columns may be packed."""
    return 2 * prod(one) * weight[0]


def _by_weight_behind_mkl(one: Shape, _packed: Shape, weight: Shape, *_: Any, **__: Any) -> int:
    return _by_rows(one, weight)


def _by_size(one: Shape, _packed: Shape, _block: int, _inner: int, outputs: int, **_: Any) -> int:
    return 2 * prod(one) * outputs


# Missing in torch's own table. Operators that call one of these or of torch's are not in it.
_MISSING: dict[str, _Formula] = {
    name: flop_counter.shape_wrapper(formula)
    for name, formula in {
        "aten::_grouped_mm": _grouped,
        "aten::_scaled_grouped_mm": _grouped,
        "aten::_scaled_grouped_mm_v2": _grouped,
        "aten::_scaled_mm_v2": _product,
        "aten::_int_mm": _product,
        "aten::_addmm_activation": _product_added,
        "aten::mv": _with_vector,
        "aten::addmv": _with_vector_added,
        "aten::dot": _with_vector,
        "aten::vdot": _with_vector,
        "aten::_weight_int8pack_mm": _by_rows,
        "aten::_weight_int4pack_mm_for_cpu": _by_rows,
        "aten::_dyn_quant_matmul_4bit": _by_size,
        "mkldnn::_linear_pointwise": _by_rows,
        "mkl::_mkl_linear": _by_weight_behind_mkl,
    }.items()
} | {
    "aten::_scaled_dot_product_flash_attention_for_cpu": flop_counter.sdpa_flop,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": flop_counter.sdpa_backward_flop,
    "aten::_scaled_dot_product_fused_attention_overrideable": flop_counter.sdpa_flop,
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": flop_counter.sdpa_backward_flop,
}


@dataclass
class Cost:
    """The cost of one row in one step. None if unknown.

    Attributes:
        runs: how often the row ran.
        flops: FLOPs of all its runs.
        moved_bytes: what these must at least read and write.
        pair_flops: of all its runs, for each pair of a query and a key of the step.
    """

    runs: int = 0
    flops: int | None = None
    moved_bytes: int | None = None
    pair_flops: int | None = None


def costs_of(events: Events, places: Attribution) -> dict[Key, Cost]:
    """Costs by row, from a step with shapes and memory. Rows of unknown cost are left out."""
    assert events.inputs is not None
    found: dict[Key, Cost] = {}
    ops, op = operators_of(events, places)
    flops, moved = _known(events, places)
    for index in np.flatnonzero((flops >= 0) | (moved >= 0)).tolist():
        key = Key(places.label(index), places.paths[places.module[index]], int(Sort.OPERATOR), ops[op[index]])
        cost = found.setdefault(key, Cost())
        if flops[index] >= 0 and key.op in FORMULAS and FORMULAS[key.op].is_of_a_pair:
            cost.pair_flops = (cost.pair_flops or 0) + int(flops[index])
        elif flops[index] >= 0:
            cost.flops = (cost.flops or 0) + int(flops[index])
        if moved[index] >= 0:
            cost.moved_bytes = (cost.moved_bytes or 0) + int(moved[index])
    return found


def _known(events: Events, places: Attribution) -> tuple[Ints, Ints]:
    """FLOPs and bytes of each event; -1 if unknown, or if counted for an event within it or around it."""
    assert events.inputs is not None
    flops, moved = (np.full(len(events), -1, np.int64) for _ in range(2))
    formulas = [formula_of(name) for name in events.names]
    retained = retained_of(events)
    for index in np.flatnonzero(_is_counted(events, places, formulas)).tolist():
        name = events.names[events.name[index]]
        shapes, dtypes = events.inputs.shapes[index], events.inputs.dtypes[index]
        formula = formulas[events.name[index]]
        if formula is not None:
            flops[index] = _flops(formula, shapes, dtypes, events.inputs.values[index])
        moved[index] = _moved(name, shapes, dtypes, int(retained[index]))
        hidden = FORMULAS[name].hidden if name in FORMULAS else None
        if hidden is not None and moved[index] >= 0:
            moved[index] += bytes_of([hidden(*shapes)], dtypes) or 0
    return flops, moved


def _is_counted(events: Events, places: Attribution, formulas: Sequence[_Formula | None]) -> Bools:
    """A mask: operators that call no other that works, and those that are counted with what they call."""
    parent = places.nesting.parent
    is_whole = events.marked([name in _WHOLE for name in events.names])
    is_product = events.marked([formula is not None for formula in formulas])
    is_caller = events.marked([name in _CALLERS for name in events.names])
    is_whole |= is_product & ~(is_caller & _around(is_product, parent))
    works = events.marked(["::" in name and name not in FREE for name in events.names])
    works &= ~(places.is_module | places.is_step | places.is_node | places.is_backward | events.is_async)
    works &= ~places.nesting.inside(is_whole)
    counted: Bools = works & (is_whole | ~_around(works, parent))
    return counted


def _around(inner: Bools, parent: Ints) -> Bools:
    """A mask: the events around any of these."""
    contains = np.zeros(len(inner), bool)
    for index in np.flatnonzero(inner)[::-1].tolist():
        around = parent[index]
        while around >= 0 and not contains[around]:
            contains[around] = True
            around = parent[around]
    return contains


def formula_of(name: str) -> _Formula | None:
    """FLOPs of one call of an operator such as `aten::mm`, given shapes or tensors; None if unknown."""
    if name in FORMULAS:
        return FORMULAS[name].flops
    space, _, op = name.removesuffix("_").partition("::")  # in place, it multiplies the same
    if (missing := _MISSING.get(f"{space}::{op}")) is not None:
        return missing
    packet = getattr(getattr(torch.ops, space, None), op, None) if op.isidentifier() else None
    found: _Formula | None = None if packet is None else flop_counter.flop_registry.get(packet)
    return _with_output(found, _CONVOLUTIONS[op]) if found is not None and op in _CONVOLUTIONS else found


def _steps(
    given: Shape, weight: Shape, stride: Shape, padding: Shape, dilation: Shape | None = None
) -> Shape:
    """The shape of a convolution's result."""
    sizes = zip(given[2:], weight[2:], stride, padding, dilation or [1] * len(stride), strict=True)
    steps = [(size + 2 * pad - far * (each - 1) - 1) // by + 1 for size, each, by, pad, far in sizes]
    return [given[0], weight[0], *steps]


def _convolved(given: Shape, weight: Shape, _bias: Any, *how: Any) -> Shape:
    stride, padding, dilation, is_transposed, *_ = how
    return given if is_transposed else _steps(given, weight, stride, padding, dilation)


def _convolution_of(output: Callable[..., Shape]) -> _Formula:
    """Each element of the result is a sum over one filter."""

    def flops(given: Shape, weight: Shape, *how: Any, **_: Any) -> int:
        return 2 * prod(output(given, weight, *how)) * prod(weight[1:])

    shaped: _Formula = flop_counter.shape_wrapper(flops)
    return shaped


# Their results' shapes, which torch's formulas ask for and a profile does not have.
_CONVOLUTIONS: dict[str, Callable[..., Any]] = {
    "convolution": _convolved,
    "_convolution": _convolved,
    "convolution_overrideable": _convolved,
    "convolution_backward": lambda _made, given, weight, *_: [given, weight, None],
}
# What these call: where the time is.
_MISSING |= {
    "aten::mkldnn_convolution": _convolution_of(
        lambda x, w, _, pad, by, far, *__: _steps(x, w, by, pad, far)
    ),
    "aten::cudnn_convolution": _convolution_of(lambda x, w, pad, by, far, *_: _steps(x, w, by, pad, far)),
    "aten::_slow_conv2d_forward": _convolution_of(lambda x, w, _, __, by, pad: _steps(x, w, by, pad)),
    "aten::slow_conv3d_forward": _convolution_of(lambda x, w, _, __, by, pad: _steps(x, w, by, pad)),
}


def _with_output(formula: _Formula, output: Callable[..., Any]) -> _Formula:
    def counted(*arguments: Any, out_val: Any = None, **named: Any) -> int:
        return formula(*arguments, out_val=output(*arguments) if out_val is None else out_val, **named)

    return counted


def _flops(formula: _Formula, shapes: Sequence[Any], dtypes: Sequence[str], values: Sequence[Any]) -> int:
    """FLOPs of a call; -1 if the formula needs more than is known."""
    given = [
        value if dtype in ("", "Scalar", "ScalarList") else shape
        for shape, dtype, value in zip(shapes, dtypes, values, strict=True)
    ]
    tensors = [shape for shape, dtype in zip(shapes, dtypes, strict=True) if dtype not in _NO_TENSOR]
    # A formula does not take what the operator takes by name: a factor, or where the result is to go.
    for arguments in (given, tensors, tensors[:-1]):
        try:
            flops: int = formula(*arguments)
        except (TypeError, ValueError, AssertionError, IndexError, AttributeError):
            continue
        return flops
    return -1


def _moved(name: str, shapes: Sequence[Any], dtypes: Sequence[str], made: int) -> int:
    """Bytes that a call moves; -1 without a tensor, or with one of an unknown type."""
    sizes: list[int] = []
    for shape, dtype in zip(shapes, dtypes, strict=True):
        if dtype in _NO_TENSOR:
            if dtype == "TensorList":
                return -1  # their types are not recorded
            continue
        size = bytes_of([shape], [dtype])
        if size is None:
            return -1
        sizes.append(size)
    if not sizes:
        return -1
    if name in _WRITES_ONLY:
        return sum(sizes)
    written = sizes[0] if name.endswith("_") else max(made, 0)
    return sum(sizes) + written


class Formula(NamedTuple):
    """The cost of one operator. Its functions take the operator's arguments, with shapes in place of tensors.

    Attributes:
        flops: FLOPs of one run.
        hidden: elements, of the type of its first tensor, that it reads and that are no argument.
        is_of_a_pair: `flops` is for each pair of a query and a key of the step (`Step.attended`).
    """

    flops: Callable[..., int]
    hidden: Callable[..., int] | None = None
    is_of_a_pair: bool = False


def _made(made: Shape, given: Shape, *_: Any) -> int:
    """The weight is behind an opaque number, or packed; the result is an argument."""
    return 2 * prod(made) * given[-1]


def _onednn_weight(made: Shape, given: Shape, *_: Any) -> int:
    return made[-1] * given[-1]


def _attention(query: Shape, _key: Shape, _value: Shape, made: Shape, *_: Any) -> int:
    """Scores, and their products with the values."""
    return 2 * (prod(query[1:]) + prod(made[1:]))


FORMULAS: dict[str, Formula] = {
    "vllm::unified_attention_with_output": Formula(_attention, is_of_a_pair=True),
    "_C::onednn_mm": Formula(_made, _onednn_weight),
    "_C::weight_packed_linear": Formula(_made),
}
