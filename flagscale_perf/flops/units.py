"""The units by which costs are multiplied: tokens, rows of experts, pairs of query and key.

A unit is a frozen dataclass that counts itself in a step. A new kind is one more class of the form `Unit`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from flagscale_perf.flops.shape import Shape
from flagscale_perf.flops.step import Measure


class Unit(Protocol):
    """Something that a step has many of, each at the same cost."""

    def doubled(self, measure: Measure) -> int:
        """Twice the number in the step, which is a whole number under every convention."""
        ...

    def slope(self, shape: Shape) -> tuple[int, int] | None:
        """Twice the number per token, and per unit of the documents' squared lengths, under causal_half; None
        if these do not determine it.
        """
        ...


class NotPerToken:
    """A unit whose number does not follow from tokens and the sum of the documents' squared lengths."""

    def slope(self, shape: Shape) -> tuple[int, int] | None:
        """Always None, as those do not determine it."""
        return None


@dataclass(frozen=True)
class Token:
    """A token that passes through a layer."""

    def doubled(self, measure: Measure) -> int:
        """Twice, with its padding included."""
        return 2 * measure.step.tokens

    def slope(self, shape: Shape) -> tuple[int, int] | None:
        """One for each token."""
        return 2, 0


@dataclass(frozen=True)
class ExpertRow:
    """A token at one of its routed experts."""

    def doubled(self, measure: Measure) -> int:
        """Padded to the experts' capacity where the measure is that of the hardware."""
        return 2 * measure.expert_rows()

    def slope(self, shape: Shape) -> tuple[int, int] | None:
        """Per token, as many as it has experts."""
        return 2 * (shape.experts.topk if shape.experts else 1), 0


@dataclass(frozen=True)
class Pair:
    """A query and a key of causal attention.

    Attributes:
        window_left: keys visible before the query's own; -1 for all.
    """

    window_left: int = -1

    def doubled(self, measure: Measure) -> int:
        """The convention decides; `causal_half` knows no windows."""
        step = measure.step
        if measure.convention == "full":
            return 2 * step.tokens * step.seq_length
        sequences, lengths = step.documents()
        if measure.convention == "causal_half":
            return sequences * sum(length * length for length in lengths)
        return sequences * sum(double_visible(length, self.window_left) for length in lengths)

    def slope(self, shape: Shape) -> tuple[int, int] | None:
        """Half of the square counts."""
        return 0, 1


def double_visible(length: int, left: int) -> int:
    """Twice the pairs of a document in which a query sees `left` keys before its own; -1 for all."""
    # The first queries see every key up to their own; all later ones see their own and `left` before it.
    growing = length if left < 0 else min(length, left + 1)
    return growing * (growing + 1) + 2 * (length - growing) * (left + 1)


@dataclass(frozen=True)
class ChunkRow(NotPerToken):
    """A token of a kernel that works in chunks and pads the last chunk of a sequence.

    Attributes:
        chunk: tokens of one.
        restarts: each packed document begins a chunk of its own.
    """

    chunk: int
    restarts: bool

    def doubled(self, measure: Measure) -> int:
        """Whole chunks of every sequence, or of every document."""
        step = measure.step
        sequences, lengths = step.documents() if self.restarts else (step.num_sequences, (step.seq_length,))
        return 2 * sequences * sum(math.ceil(length / self.chunk) * self.chunk for length in lengths)


TOKEN, EXPERT_ROW = Token(), ExpertRow()
