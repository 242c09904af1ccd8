"""What a training's writer reads besides the ring: rank 0's device, and the other ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flagscale_perf.training.host import HostRecord
from flagscale_perf.training.ledger.cuts import StepCuts
from flagscale_perf.training.phases import StepPhases
from flagscale_perf.training.ranks.gather import Gathering
from flagscale_perf.training.records import HardwareRecord, IntervalRecord, Record, StepRecord

# Readings of the device since the last call, and what there is to say about them.
TakeReadings = Callable[[], tuple[list[HardwareRecord], list[str]]]


def no_readings() -> tuple[list[HardwareRecord], list[str]]:
    """Where nothing reads the device."""
    return [], []


class OneRank:
    """`Gathering` where there are no other ranks."""

    def step(self, step: StepRecord, phases: StepPhases | None, cuts: StepCuts | None) -> None:
        """Ignored: there is no other rank to compare it with."""

    def reading(self, reading: HardwareRecord | HostRecord) -> None:
        """Ignored: there is no other rank to compare it with."""

    def interval(self, interval: IntervalRecord) -> list[Record]:
        """An empty list: an interval of one rank adds no records."""
        return []

    def request(self, content: Any) -> None:
        """Ignored: there is no other rank to answer it."""

    def take(self) -> tuple[list[Record], list[str]]:
        """No records and no notes."""
        return [], []

    close = take


class UnreadRanks(OneRank):
    """Where the other ranks are not read."""

    def __init__(self, note: str) -> None:
        """`note` says why."""
        self._notes = [note]

    def take(self) -> tuple[list[Record], list[str]]:
        """No records; the note that says why, the first time."""
        notes, self._notes = self._notes, []
        return [], notes

    close = take


@dataclass(frozen=True)
class Sources:
    """Of one writer.

    Attributes:
        readings: of rank 0's device; must not block.
        ranks: of the whole job; its methods neither raise nor block for long.
        host: new readings of rank 0's host.
    """

    readings: TakeReadings = no_readings
    ranks: OneRank | Gathering = field(default_factory=OneRank)
    host: Callable[[], list[HostRecord]] = list
