"""What of a rank's time is its own work and what may be waiting for others."""

from __future__ import annotations

from typing import NamedTuple

from flagscale_perf.training.phases import PHASES, Kind, of_kind
from flagscale_perf.training.ranks.blocks import Block


def _places(kind: Kind) -> tuple[int, ...]:
    return tuple(map(PHASES.index, of_kind(kind)))


OWN_PLACES, MIXED_PLACES, WAITING_PLACES = map(_places, (Kind.WORK, Kind.BOTH, Kind.WAITING))
_DATA = PHASES.index("data_loading")


class Work(NamedTuple):
    """Nanoseconds of a usual step of a rank.

    Attributes:
        own_ns: certainly its own work.
        mixed_ns: phases that may hold waiting, too.
        wait_ns: waiting for other ranks.
        data_ns: loading data, contained in own_ns; None if the host does not name it.
    """

    own_ns: int
    mixed_ns: int
    wait_ns: int
    data_ns: int | None


def work_of(block: Block) -> Work | None:
    """None where no phases were measured."""
    phases = block.phases_ns
    if phases is None:
        return None
    return Work(
        _sum(phases, OWN_PLACES), _sum(phases, MIXED_PLACES), _sum(phases, WAITING_PLACES), phases[_DATA]
    )


def _sum(phases: tuple[int | None, ...], places: tuple[int, ...]) -> int:
    return sum(phases[place] or 0 for place in places)
