"""The blocks of one pipeline stage side by side, and what is usual among them."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.ranks.blocks import Block, RankIdentity
from flagscale_perf.training.ranks.robust import median_without
from flagscale_perf.training.ranks.work import Work


class Seen(NamedTuple):
    """One rank in one round."""

    who: RankIdentity
    block: Block
    work: Work

    def phase_ns(self, place: int) -> int:
        """Of one of `PHASES` by its place in them; 0 where the host did not name it."""
        phases = self.block.phases_ns
        return 0 if phases is None else phases[place] or 0


class Round(NamedTuple):
    """The blocks of one stage with one number.

    Attributes:
        seen: by rank.
        work: the median rank's; the lower one of two in the middle, so that one slow rank of two does not
            make the stage slow.
        phases_ns: the same of every phase, in the order of `PHASES`.
        clock_mhz: median; None without a reading.
    """

    seen: dict[int, Seen]
    work: Work
    phases_ns: tuple[int, ...]
    clock_mhz: float | None

    @property
    def iteration_ns(self) -> int:
        """Median over the ranks."""
        return round(statistics.median(each.block.iteration_ns or 0 for each in self.seen.values()))


def round_of(seen: Sequence[Seen]) -> Round:
    """The round of these blocks, at least one."""
    own, mixed, wait = (statistics.median_low(each.work[place] or 0 for each in seen) for place in range(3))
    phases = tuple(
        statistics.median_low([each.phase_ns(place) for each in seen]) for place in range(len(PHASES))
    )
    return Round(
        {each.who.rank: each for each in seen},
        Work(own, mixed, wait, None),
        phases,
        median_clock(each.block for each in seen),
    )


def median_clock(blocks: Iterable[Block]) -> float | None:
    """Of these blocks' lowest clocks; None without a reading."""
    clocks = [block.sm_clock_mhz for block in blocks if block.sm_clock_mhz is not None]
    return statistics.median(clocks) if clocks else None


def groups_of(round_: Round) -> dict[int, list[Seen]]:
    """The lockstep groups; where there is only one, every rank by itself.

    Ranks in lockstep take as long as the slowest of them, so that a rank compared with its own group would
    look like the others of it.
    """
    groups: dict[int, list[Seen]] = defaultdict(list)
    for each in round_.seen.values():
        groups[each.who.lockstep].append(each)
    return groups if len(groups) > 1 else {rank: [each] for rank, each in round_.seen.items()}


def usual_of_others(groups: dict[int, list[Seen]]) -> dict[int, Work]:
    """For each rank the median of the other groups; empty where there is no other.

    Without its own group, because among a few groups a slow one would move the median it is compared with:
    of two it would halve its own excess.
    """
    if len(groups) < 2:
        return {}
    works = [_median_work(members) for members in groups.values()]
    own, mixed, wait = (_medians_without([work[place] or 0 for work in works]) for place in range(3))
    usual = [Work(*values, None) for values in zip(own, mixed, wait, strict=True)]
    return {
        each.who.rank: work for members, work in zip(groups.values(), usual, strict=True) for each in members
    }


def _median_work(members: Sequence[Seen]) -> Work:
    if len(members) == 1:
        return members[0].work
    own, mixed, wait = (
        round(statistics.median(each.work[place] or 0 for each in members)) for place in range(3)
    )
    return Work(own, mixed, wait, None)


def _medians_without(values: Sequence[int]) -> list[int]:
    """For each value the median of the others."""
    order = sorted(range(len(values)), key=lambda index: values[index])
    ordered = [values[index] for index in order]
    medians = [0] * len(values)
    for place, index in enumerate(order):
        medians[index] = round(median_without(ordered, place))
    return medians
