"""FLOPs, and weights that are no argument, of operators missing from torch's own table.

A row here is all that another library's operator needs. How many keys each query meets in a serving engine's
attention is in no shape: the engine says so for a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

Shape = Sequence[int]


class Formula(NamedTuple):
    """The cost of one operator. Its functions take the operator's arguments, with shapes in place of tensors.

    Attributes:
        flops: of one run.
        hidden: elements, of the type of its first tensor, that it reads and that are no argument.
        is_of_a_pair: `flops` is for each pair of a query and a key of the step (`Step.attended`).
    """

    flops: Callable[..., int]
    hidden: Callable[..., int] | None = None
    is_of_a_pair: bool = False


def _onednn_mm(made: Shape, given: Shape, *_: Any) -> int:
    """The weight is behind an opaque number; the result is an argument."""
    return 2 * prod(made) * given[-1]


def _onednn_weight(made: Shape, given: Shape, *_: Any) -> int:
    return made[-1] * given[-1]


def _packed_linear(made: Shape, given: Shape, *_: Any) -> int:
    return 2 * prod(made) * given[-1]


def _attention(query: Shape, _key: Shape, _value: Shape, made: Shape, *_: Any) -> int:
    """Scores, and their products with the values."""
    return 2 * (prod(query[1:]) + prod(made[1:]))


FORMULAS: dict[str, Formula] = {
    "vllm::unified_attention_with_output": Formula(_attention, is_of_a_pair=True),
    "_C::onednn_mm": Formula(_onednn_mm, _onednn_weight),
    "_C::weight_packed_linear": Formula(_packed_linear),
}
