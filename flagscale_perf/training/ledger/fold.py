"""The ledgers of a run, folded from its records in bounded memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import partial

from flagscale_perf.training.ledger.ledger import LateRow, Ledger, ledger_of
from flagscale_perf.training.rank_records import CutsRecord
from flagscale_perf.training.sample import Sample

MAX_STEPS, STRETCH = 2048, 64  # kept of a stage


class LedgerFold:
    """Keeps steps of every stage, of a long run stretches of them."""

    def __init__(self) -> None:
        self._stages: dict[int, Sample[CutsRecord]] = defaultdict(partial(Sample, MAX_STEPS, STRETCH))

    def add(self, record: CutsRecord) -> None:
        """The next step of a stage."""
        self._stages[record.stage].add(record)

    @property
    def rows(self) -> int:
        """How many rows of units and steps are kept: what `result` takes is proportional to that."""
        return sum(len(record.sizes) for sample in self._stages.values() for record in sample.steps.values())

    def result(self, since: int) -> list[Ledger]:
        """The ledger of each stage, by stage number, over the steps from iteration `since` on."""
        found = (
            ledger_of([record for iteration, record in sample.steps.items() if iteration >= since])
            for _, sample in sorted(self._stages.items())
        )
        return [ledger for ledger in found if ledger is not None]


def late_share(ledgers: Iterable[Ledger]) -> float | None:
    """Which part of the steps late ranks cost the others: of the stage that waits the longest, as stages
    wait at the same time. What rank 0 loads longer is left out: it is in its data stall. None without any.
    """
    return max((ledger.share(sum(map(_counted, ledger.late))) for ledger in ledgers), default=None)


def _counted(row: LateRow) -> int:
    return 0 if row.phase == "data_loading" and 0 in row.ranks else row.cost_ns
