"""What figures are judged by, in the writer and in reports."""

from __future__ import annotations

from dataclasses import dataclass

CAUSE = 0.8  # of a cost: what explains so much of it is its cause, what explains less is an observation


@dataclass(frozen=True)
class Limit:
    """What a figure is judged by. `unit` as in `Evidence`, or what is counted; `source` is a publication, a
    measurement, or the reasoning by which we chose it.
    """

    value: float
    unit: str
    source: str

    @property
    def count(self) -> int:
        """The value of a limit that counts something."""
        return int(self.value)
