"""The cuts of the ranks of a stage side by side, as records of a run file."""

from __future__ import annotations

import heapq
import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from flagscale_perf.training.ledger.cuts import StepCuts
from flagscale_perf.training.rank_records import PHASE_BASE, CutsRecord

KEPT_UNITS = 8  # of which all rows are kept; of more units the latest ones at each cut
LATEST = 2
MAX_VALUES = 1000  # of one record's lists
MAX_SHOWN = 64  # ranks of a unit


class Member(NamedTuple):
    """One rank of the stage in some steps.

    Attributes:
        rank: its number.
        lockstep: of the group that does every step together.
        steps: its cuts.
    """

    rank: int
    lockstep: int
    steps: Sequence[StepCuts]


def records_of(stage: int, members: Sequence[Member], suspects: Collection[int]) -> list[CutsRecord]:
    """One record for each step that every unit of the stage has, with the same cuts; `suspects`: first ranks
    of units whose rows are kept in any case.
    """
    groups: dict[int, list[Member]] = defaultdict(list)
    for member in sorted(members):
        groups[member.lockstep].append(member)
    by_step: dict[int, dict[tuple[int, ...], StepCuts]] = defaultdict(dict)
    for group in groups.values():
        ranks = tuple(member.rank for member in group[:MAX_SHOWN])
        for step in group[0].steps:
            by_step[step.iteration][ranks] = step
    return [
        record
        for iteration, units in sorted(by_step.items())
        if len(units) == len(groups) > 1
        for record in _record_of(iteration, stage, units, suspects)
    ]


def _record_of(
    iteration: int, stage: int, units: Mapping[tuple[int, ...], StepCuts], suspects: Collection[int]
) -> list[CutsRecord]:
    """None where the units' cuts differ."""
    shapes = {tuple(cut.phase for cut in step.cuts) for step in units.values()}
    if len(shapes) > 1:
        return []
    (waits,) = shapes
    columns = sorted(
        {
            PHASE_BASE * number + phase
            for step in units.values()
            for number, cut in enumerate(step.cuts)
            for phase in cut.own_ns
        }
    )
    own = {
        ranks: [step.cuts[column // PHASE_BASE].own_ns.get(column % PHASE_BASE, 0) for column in columns]
        for ranks, step in units.items()
    }
    waited = {ranks: [cut.wait_ns for cut in step.cuts] for ranks, step in units.items()}
    kept = list(units)
    if len(units) > KEPT_UNITS:
        kept = _latest(units, suspects)[: max(1, MAX_VALUES // (len(columns) + len(waits)) - 1)]
        own[()] = [int(statistics.median(values)) for values in zip(*own.values(), strict=True)]
        waited[()] = [min(values) for values in zip(*waited.values(), strict=True)]
        kept.append(())
    if len(kept) * max(len(columns), len(waits)) > MAX_VALUES or not columns:
        return []
    return [
        CutsRecord(
            iteration=iteration,
            stage=stage,
            units=len(units),
            waits=list(waits),
            columns=columns,
            ranks=[rank for ranks in kept for rank in ranks],
            sizes=[len(ranks) for ranks in kept],
            own_ns=[value for ranks in kept for value in own[ranks]],
            wait_ns=[value for ranks in kept for value in waited[ranks]],
        )
    ]


def _latest(units: Mapping[tuple[int, ...], StepCuts], suspects: Collection[int]) -> list[tuple[int, ...]]:
    """Suspects first, then those that waited least at each cut."""
    found = dict.fromkeys(ranks for ranks in units if ranks[0] in suspects)
    cuts = range(len(next(iter(units.values())).cuts))
    for number in cuts:
        found |= dict.fromkeys(
            heapq.nsmallest(LATEST, units, key=lambda ranks: units[ranks].cuts[number].wait_ns)
        )
    return list(found)
