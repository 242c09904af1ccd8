"""What the units of a stage have to do in a step, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flagscale_perf.spine.averages import median
from flagscale_perf.training.rank_records import CutsRecord
from flagscale_perf.training.work import WORK

MOST_FLOPS = 1e30  # of a unit of work: what a damaged file has beyond that is not known
_TOKENS, _EXPERTS, _MICROBATCHES = map(WORK.index, ("tokens", "expert_tokens", "microbatches"))

Kinds = Mapping[int, float]  # what one unit of a kind of work costs in FLOPs, by its place in `WORK`


class Load(NamedTuple):
    """What a unit has to do in a step, beside the median of the other units.

    Attributes:
        passes, usual_passes: micro-batches; 1 where their number is not known.
        flops, usual_flops: of all of them, forward and backward.
        expert_flops: of these, what its experts have; 0 where that is not known.
    """

    passes: float
    flops: float
    usual_passes: float
    usual_flops: float
    expert_flops: float = 0.0

    @property
    def more_flops(self) -> float:
        """By how much one of its micro-batches is larger than one of the others'."""
        return self.flops / self.passes - self.usual_flops / self.usual_passes


def costs_of(work_flops: Mapping[str, float] | None) -> dict[int, float]:
    """What is known of the FLOPs in `RunFacts.work_flops`, by the kind's place in `WORK`."""
    return {
        place: cost
        for place, name in enumerate(WORK)
        if work_flops and isinstance(cost := work_flops.get(name), int | float) and 0 <= cost < MOST_FLOPS
    }


def kinds_of(records: Sequence[CutsRecord], work_flops: Mapping[str, float] | None) -> Kinds:
    """The kinds of work that most of the records know of all their rows; none without tokens."""
    known = costs_of(work_flops)
    counts = Counter(_known(record) for record in records if record.work)
    found = max(counts, key=lambda places: (counts[places], len(places)), default=frozenset())
    if _TOKENS not in found or not known.get(_TOKENS):
        return {}
    price = {place: cost for place, cost in known.items() if place in found}
    return price | ({_MICROBATCHES: 0.0} if _MICROBATCHES in found else {})


def _known(record: CutsRecord) -> frozenset[int]:
    work = record.work or []
    return frozenset(place for place in range(len(WORK)) if min(work[place :: len(WORK)], default=-1) >= 0)


def loads_of(record: CutsRecord, kinds: Kinds, rows: Sequence[int], usual: int | None) -> list[Load] | None:
    """The loads of these rows of a record; None where the work of one is not known.

    `usual`: the row that stands for all others; without one each row is laid beside the median of the others.
    """
    if not kinds or not kinds.keys() <= _known(record):
        return None
    every = {row: _totals(record, kinds, row) for row in {*rows, *([] if usual is None else [usual])}}
    if any(min(totals) <= 0 for totals in every.values()):
        return None
    found = []
    for number, row in enumerate(rows):
        others = [every[other] for at, other in enumerate(rows) if at != number]
        beside = others if usual is None else [every[usual]]
        experts = kinds.get(_EXPERTS, 0.0) * (record.work or [])[row * len(WORK) + _EXPERTS]
        usual_passes, usual_flops = map(median, zip(*beside, strict=True))
        found.append(Load(*every[row], usual_passes, usual_flops, experts))
    return found


def _totals(record: CutsRecord, kinds: Kinds, row: int) -> tuple[float, float]:
    work = (record.work or [])[row * len(WORK) : (row + 1) * len(WORK)]
    passes = work[_MICROBATCHES] if _MICROBATCHES in kinds else 1
    return passes, sum(work[place] * cost for place, cost in kinds.items())
