"""Which operations and calls are kept under sampling. The decision follows from the batch alone, so that
producer and consumer agree without communicating.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from flagscale_perf.trace.options import TraceOptions
from flagscale_perf.trace.records import ONE

_RANGE = 1 << 64
_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True)
class Sampling:
    """A share of the batches, spread evenly.

    Attributes:
        share: of the batches that are kept; 1 keeps all.
        weight_milli: how many a kept one stands for, in thousandths.
        below: what `position` of a kept one is less than.
    """

    share: float
    weight_milli: int
    below: int

    @classmethod
    def of(cls, options: TraceOptions) -> Sampling:
        """Combines the ratio with every N-th."""
        share = options.ratio / options.every
        return cls(share, round(ONE / share), int(share * _RANGE))

    @property
    def keeps_all(self) -> bool:
        """Whether nothing is left out."""
        return self.below >= _RANGE

    def keeps(self, trace_id: str, partition: str, first_row: int | None) -> bool:
        """Whether the batch is kept: decided by its id, otherwise by its partition and first row."""
        text = trace_id or f"{partition}\0{first_row}"
        return position(text) < self.below


def position(text: str) -> int:
    """The text's position in the sample space, as 64 bits. For a trace id as OpenTelemetry makes it: the low
    64 bits, as in its ratio-based sampler; for a random UUID, which has a fixed bit among these: the low 62
    of them.
    """
    digits = text.replace("-", "") if len(text) == 36 else text
    if len(digits) == 32 and _HEX.issuperset(digits):
        low = int(digits[16:], 16)
        is_random_uuid = digits[12] == "4" and digits[16] in "89ab"
        return (low << 2) % _RANGE if is_random_uuid else low
    return int.from_bytes(
        hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=8).digest(), "big"
    )
