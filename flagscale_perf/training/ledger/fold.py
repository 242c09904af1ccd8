"""The ledgers of a run, folded from its records in bounded memory."""

from __future__ import annotations

from collections import defaultdict
from functools import partial

from flagscale_perf.training.ledger.ledger import Ledger, ledger_of
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

    def result(self, since: int) -> list[Ledger]:
        """The ledger of each stage, by stage number, over the steps from iteration `since` on."""
        found = (
            ledger_of([record for iteration, record in sample.steps.items() if iteration >= since])
            for _, sample in sorted(self._stages.items())
        )
        return [ledger for ledger in found if ledger is not None]
