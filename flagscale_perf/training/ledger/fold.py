"""The ledgers of a run, folded from its records in bounded memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial

from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.ledger.book import rows_of
from flagscale_perf.training.ledger.ledger import LateRow, Ledger, ledger_of
from flagscale_perf.training.ledger.load import costs_of
from flagscale_perf.training.rank_records import CutsRecord
from flagscale_perf.training.sample import Sample
from flagscale_perf.training.work import UNKNOWN

MAX_STEPS, STRETCH = 2048, 64  # kept of a stage


class LedgerFold:
    """Keeps steps of every stage, of a long run stretches of them."""

    def __init__(self, facts: RunFacts | None = None) -> None:
        """`facts` of the run; without them nothing is said of work."""
        self._work = (facts.work_flops, (facts.expert_parallel or 1) > 1) if facts else ()
        self._stages: dict[int, Sample[CutsRecord]] = defaultdict(partial(Sample, MAX_STEPS, STRETCH))

    def add(self, record: CutsRecord) -> None:
        """The next step of a stage."""
        self._stages[record.stage].add(record)

    @property
    def rows(self) -> int:
        """How many rows of units and steps are kept: what `result` takes is proportional to that."""
        return sum(len(record.sizes) for sample in self._stages.values() for record in sample.steps.values())

    def share_of_rank_0(self, work_flops: Mapping[str, float] | None) -> float | None:
        """FLOPs of all ranks against those of as many ranks like rank 0, over the steps kept of its stage in
        which both are known; None without any.
        """
        costs = costs_of(work_flops)
        if costs.keys() != {0, 1}:  # what experts do for a token is not in its cost
            return None
        found = [_flops_of(record, costs) for record in self._stages[0].steps.values()]
        known = [pair for pair in found if pair is not None]
        return sum(done for done, _ in known) / sum(taken for _, taken in known) if known else None

    def result(self, since: int) -> list[Ledger]:
        """The ledger of each stage, by stage number, over the steps from iteration `since` on."""
        found = (
            ledger_of(
                [record for iteration, record in sample.steps.items() if iteration >= since], *self._work
            )
            for _, sample in sorted(self._stages.items())
        )
        return [ledger for ledger in found if ledger is not None]


def _flops_of(record: CutsRecord, costs: Mapping[int, float]) -> tuple[float, float] | None:
    """Of all ranks, and what they are taken for. The row without ranks stands for all that have none."""
    units, works = [unit for unit, *_ in rows_of(record)], record.works()
    first = next((row for row, unit in enumerate(units) if 0 in unit), None)
    if first is None or any(UNKNOWN in work[:2] for work in works):
        return None
    flops = [sum(cost * work[place] for place, cost in costs.items()) for work in works]
    others = record.units - sum(map(bool, units))
    done = sum(each if unit else others * each for each, unit in zip(flops, units, strict=True))
    return (done, record.units * flops[first]) if flops[first] > 0 else None


def late_share(ledgers: Iterable[Ledger]) -> float | None:
    """Which part of the steps late ranks cost the others: of the stage that waits the longest, as stages
    wait at the same time. What rank 0 loads longer is left out: it is in its data stall. None without any.
    """
    return max((ledger.share(sum(map(_counted, ledger.late))) for ledger in ledgers), default=None)


def _counted(row: LateRow) -> int:
    return 0 if row.phase == "data_loading" and 0 in row.ranks else row.cost_ns
