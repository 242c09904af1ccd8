"""Steps of the last consumer: its calls, or its gets where it has none."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

from flagscale_perf.trace.analysis.transfers import Transfer, Transfers
from flagscale_perf.trace.records import Kind


class Steps:
    """When the last consumer's steps ended, in each of its processes."""

    def __init__(self, transfers: Transfers, consumer: str) -> None:
        self._transfers = transfers
        self._ends: dict[str, list[int]] = defaultdict(list)
        for work in transfers.works.values():
            if work.function == consumer:
                self._ends[work.process].append(work.end_ns)
        if not self._ends:  # outside of functions each get is a step
            for transfer in transfers.transfers:
                if transfer.kind is Kind.GET and transfers.consumer_of(transfer) == consumer:
                    self._ends[transfer.process].append(transfer.end_ns)
        for ends in self._ends.values():
            ends.sort()

    def number(self, get: Transfer) -> int:
        """Number of the step that the get belongs to, from 1; as recorded, if it is."""
        if get.step is not None:
            return get.step
        return self._at(get.process, self._begin(get)) + 1

    def between(self, put: Transfer, get: Transfer) -> int:
        """How many steps ended after the put and before the step of the get began."""
        if put.step is not None and get.step is not None:
            return max(0, get.step - put.step)
        return max(0, self._at(get.process, self._begin(get)) - self._at(get.process, put.ready_ns))

    def _begin(self, get: Transfer) -> int:
        work = self._transfers.works.get((get.process, get.call))
        return get.start_ns if work is None else work.start_ns

    def _at(self, process: str, at_ns: int) -> int:
        return bisect_right(self._ends[process], at_ns)
