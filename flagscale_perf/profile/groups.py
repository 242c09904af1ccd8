"""Process groups as text: purpose and members, so that a group has the same text on all its ranks and differs
from another group of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_RUN = re.compile(r"(\d+)(?:-(\d+)(?:/(\d+))?)?")


class Group(NamedTuple):
    """A process group.

    Attributes:
        name: what it is for, such as "TENSOR_MODEL_PARALLEL_GROUP".
        ranks: of the job, in the group's order; None where nobody says.
    """

    name: str
    ranks: tuple[int, ...] | None = None

    def __str__(self) -> str:
        return self.name if self.ranks is None else f"{self.name} {_ranks_text(self.ranks)}"

    @classmethod
    def parse(cls, text: str) -> Group:
        """The group that `str` made the text of."""
        name, _, tail = text.rpartition(" ")
        matches = [_RUN.fullmatch(part) for part in tail.split(",")]
        if not name or not all(matches):
            return cls(text)
        ranks: list[int] = []
        for match in filter(None, matches):
            first, last, stride = match.groups()
            ranks.extend(range(int(first), int(last or first) + 1, int(stride or 1)))
        return cls(name, tuple(ranks))


def _ranks_text(ranks: Sequence[int]) -> str:
    """`0-7`, `0-12/4` for every fourth, otherwise the runs of consecutive ranks: `0-1,6`."""
    parts, at = [], 0
    while at < len(ranks):
        stride = ranks[at + 1] - ranks[at] if at + 1 < len(ranks) else 0
        end = at
        while stride > 0 and end + 1 < len(ranks) and ranks[end + 1] - ranks[end] == stride:
            end += 1
        if end == at or (end == at + 1 and stride > 1 and end + 1 < len(ranks)):
            parts.append(str(ranks[at]))
            at += 1
        else:
            parts.append(f"{ranks[at]}-{ranks[end]}" + (f"/{stride}" if stride > 1 else ""))
            at = end + 1
    return ",".join(parts)
