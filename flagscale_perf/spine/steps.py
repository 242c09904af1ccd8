"""Steps and ranks as a user writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from flagscale_perf.spine.errors import PerfError

_STEPS = re.compile(r"(\d+)(?:-(\d+))?(?:/(\d+))?")


@dataclass(frozen=True)
class Steps:
    """Which steps are profiled: as many as from `first` to `last`, from `first` on, with what lies in between
    left to whoever profiles; and the same many again after every `every`.

    Attributes:
        first, last: as the host counts them, both included.
        every: steps from one window's first to the next one's; None: there is one window.
    """

    first: int
    last: int
    every: int | None = None

    @classmethod
    def parse(cls, text: str) -> Steps:
        """`20`, `20-22` or `20-22/100`. Raises PerfError for anything else."""
        match = _STEPS.fullmatch(text.strip())
        if match is None:
            raise PerfError(
                f"{text!r} does not name steps; write for example 20-22, or 20-22/100 for every 100"
            )
        first, last, every = int(match[1]), int(match[2] or match[1]), int(match[3]) if match[3] else None
        if first < 1 or last < first:
            raise PerfError(
                f"{text!r} does not name steps: the first is 1 and the last is not before the first"
            )
        if every is not None and every <= last - first:
            raise PerfError(
                f"{text!r}: a window of {last - first + 1} steps cannot begin every {every} steps"
            )
        return cls(first, last, every)

    def __str__(self) -> str:
        return f"{self.first}-{self.last}" + (f"/{self.every}" if self.every else "")


def parse_ranks(text: str) -> frozenset[int]:
    """Of `0,2-3`: 0, 2 and 3. Raises PerfError."""
    found: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise PerfError(f"{text!r} is not a list of ranks; write for example 0,2-3")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found)
