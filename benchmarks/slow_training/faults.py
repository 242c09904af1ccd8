"""What is planted in a run, as it is judged."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NEAR_OF_STEP = 0.02  # what costs less need not be named


@dataclass(frozen=True)
class Fault:
    """All that is planted on a rank: more work takes longer in several phases.

    Attributes:
        run: its name.
        rank: None where it is another one in each step, or nobody can tell it from marks.
        parts: what is planted, by phase.
        truth: of the run.
    """

    run: str
    rank: int | None
    parts: dict[str, dict[str, Any]]
    truth: dict[str, Any]

    @property
    def cost_ms(self) -> float:
        """Of a mean step."""
        return sum(part["cost_ms"] for part in self.parts.values())

    @property
    def within_ms(self) -> float:
        """How well that is known."""
        return sum(part["within_ms"] for part in self.parts.values())

    @property
    def is_small(self) -> bool:
        """Whether it costs so little that nobody need name it."""
        return self.cost_ms < NEAR_OF_STEP * self.truth["step_ms"]

    def has(self, each: dict[str, Any]) -> bool:
        """Whether a finding is this. More work in all of several phases may be said without naming one, and
        who names the rank that marks do not show is right, too.
        """
        rank, phase = each.get("rank"), each.get("phase")
        on = {tuple(part["planted_on"]) for part in self.parts.values()}
        if rank != self.rank and on != {(rank,)}:
            return False
        is_all = phase is None and each.get("cause") == "work" and len(self.parts) > 1
        return is_all or self.part(phase) is not None

    def part(self, phase: str | None) -> dict[str, Any] | None:
        """What is planted in a phase; "optimizer" is any part of it."""
        names = [name for name in self.parts if phase == "optimizer" and name.startswith(phase)]
        return self.parts.get(names[0] if names else phase or "")


def faults_of(run: str, truth: dict[str, Any]) -> list[Fault]:
    """Of a run, in the order of its truth."""
    by_rank: dict[int | None, dict[str, dict[str, Any]]] = defaultdict(dict)
    for plant in truth["plants"]:
        by_rank[plant["rank"]][plant["phase"]] = plant
    return [Fault(run, rank, parts, truth) for rank, parts in by_rank.items()]


def truths_of(directory: Path) -> dict[str, dict[str, Any]]:
    """Of every run, by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))}


def is_standing(each: dict[str, Any], truth: dict[str, Any]) -> bool:
    """Whether a finding is of what is uneven all the time and has no price: neither right nor wrong."""
    return any(
        each.get("rank") in (None, *stands["ranks"]) and each.get("phase") in (None, stands["phase"])
        for stands in truth["standing"]
    )
