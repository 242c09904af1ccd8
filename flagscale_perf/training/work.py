"""A rank's work in a step. It differs between ranks where documents are packed, experts are hot, or one rank
runs one micro-batch more: then a late rank is no slow one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from flagscale_perf.spine.averages import median

# Tokens in the rank's own micro-batches; the sum of the squared lengths of the documents in them, where each
# attends to itself only; tokens that its experts received, all its layers together; micro-batches.
WORK = ("tokens", "squared_lengths", "expert_tokens", "microbatches")
UNKNOWN = -1
# In what is not available, where a job's FLOPs follow from the documents of one rank
AS_RANK_0 = "other ranks' as rank 0's"
RankWork = tuple[int | None, int | None, int | None]  # the first three, as `StepRecord` has them
NOT_COUNTED: RankWork = (None, None, None)


class Microbatch(NamedTuple):
    """What is known of a rank's micro-batches before the first step.

    Attributes:
        chunks: parts of the model that each of them goes through on this rank, one after another; 0 where not
            every forward pass is marked.
        samples: in each of them; None where that is not known, or samples differ in length.
        sample_tokens: length of every sample; None like samples.
    """

    chunks: int = 0
    samples: int | None = None
    sample_tokens: int | None = None


def usual_work(rows: Iterable[Sequence[int]]) -> list[int]:
    """The median of each kind over the rows in which it is known; UNKNOWN where it is in none."""
    known = ([value for value in values if value != UNKNOWN] for values in zip(*rows, strict=True))
    return [int(median(values)) if values else UNKNOWN for values in known]
