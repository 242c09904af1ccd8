"""One training step, and what the units of a model are counted by."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flagscale_perf.flops.shape import Shape
from flagscale_perf.spine.errors import PerfError


@dataclass(frozen=True)
class Step:
    """The sequences of one training step, over all ranks.

    Attributes:
        num_sequences: sequences.
        seq_length: tokens of one.
        packed: lengths of the documents in them; None where each sequence is one document.
    """

    num_sequences: int
    seq_length: int
    packed: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Refuses impossible sizes. Raises PerfError."""
        size = f"{self.num_sequences} sequences of {self.seq_length} tokens"
        if self.num_sequences < 1 or self.seq_length < 1:
            raise PerfError(f"a step cannot have {size}; both must be above 0")
        if self.packed is not None and (min(self.packed, default=0) < 1 or sum(self.packed) > self.tokens):
            raise PerfError(
                "packed lengths must be above 0 and sum up to at most "
                f"{self.num_sequences} x {self.seq_length} = {self.tokens} tokens; "
                f"they are {len(self.packed)} lengths of {sum(self.packed)} tokens"
            )

    @property
    def tokens(self) -> int:
        """Tokens that pass through every linear layer, padding included."""
        return self.num_sequences * self.seq_length

    def documents(self) -> tuple[int, tuple[int, ...]]:
        """How often documents of each length occur in the step."""
        return (self.num_sequences, (self.seq_length,)) if self.packed is None else (1, self.packed)


@dataclass(frozen=True)
class Measure:
    """What the units of a model are counted by.

    Attributes:
        shape: the model.
        step: what is processed.
        convention: of `flops_calculator.CONVENTIONS`.
        padded: whether the inputs of routed experts are filled up to their capacity, as on the hardware.
    """

    shape: Shape
    step: Step
    convention: str
    padded: bool

    def expert_rows(self) -> int:
        """Rows that the routed experts of one layer multiply: tokens times experts a token goes to.

        Padded, every expert gets as many rows as its capacity in each forward pass, which is rounded as
        Megatron-Core's `get_capacity` does; with a capacity factor below 1 these can be fewer.
        """
        shape, step = self.shape, self.step
        moe = shape.experts
        if moe is None:
            return 0
        if not self.padded or moe.capacity_factor is None:
            return step.tokens * moe.topk
        routed = (shape.micro_batch or step.num_sequences) * step.seq_length // shape.sequence_shards
        capacity = math.ceil(routed * moe.topk / moe.count * moe.capacity_factor)
        return step.tokens // routed * moe.count * capacity
