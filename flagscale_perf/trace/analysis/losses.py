"""What is missing from the traces that were read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Losses:
    """What is missing, as far as it can be known.

    Attributes:
        repeated: lines that Ray left out as repetitions, and of which processes.
        lossy: these.
        torn: trace lines that could not be read.
        unfinished: calls that began in the text and did not end.
        dropped: records that a ring had no room for.
        lost: calls and operations that were made and did not come, by their numbers.
        twice: calls and operations that were read more than once, by their numbers.
        uncertain: processes of which nobody knows whether something is missing.
        troubles: files whose end could not be read, and why.
    """

    repeated: int = 0
    lossy: set[str] = field(default_factory=set)
    torn: int = 0
    unfinished: int = 0
    dropped: int = 0
    lost: int = 0
    twice: int = 0
    uncertain: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return vars(self) | {"lossy": sorted(self.lossy)}
