"""What the summary says of all ranks, folded from the records of them."""

from __future__ import annotations

import statistics
from typing import Any

from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.training.phases import share
from flagscale_perf.training.ranks.records import NodeRecord, RanksRecord, StragglerRecord
from flagscale_perf.training.rates import as_gb
from flagscale_perf.training.records import Record

MAX_STRAGGLERS = 50
MAX_NAMED = 64


class RankTotals:
    """Running sums over a run: as many as a `RanksRecord` has entries, however long it lasts."""

    def __init__(self, size: int | None) -> None:
        """`size` of the job in ranks; None if not known."""
        self._size = size
        self._hosts: set[str] = set()
        self._last: RanksRecord | None = None
        self._work_ns: list[int] = []
        self._wait_ns: list[int] = []
        self._iteration_ns: list[int] = []
        self._stretches: list[int] = []
        self._peaks: list[int | None] = []
        self._stragglers: dict[tuple[int, str, int], StragglerRecord] = {}
        self._count = 0

    def add(self, record: Record) -> None:
        """The next record of the run; most are no matter of ranks."""
        if isinstance(record, NodeRecord):
            self._hosts.add(record.hostname)
        elif isinstance(record, RanksRecord):
            self._add_stretch(record)
        elif isinstance(record, StragglerRecord):
            self._add_straggler(record)

    def _add_stretch(self, record: RanksRecord) -> None:
        if (
            self._last is None
            or record.ranks_per_entry != self._last.ranks_per_entry
            or len(record.work_ns) != len(self._work_ns)
        ):
            entries = len(record.work_ns)
            self._work_ns, self._wait_ns, self._iteration_ns, self._stretches = (
                [0] * entries for _ in range(4)
            )
            self._peaks = [None] * entries
        self._last = record
        columns = zip(
            record.iteration_ns, record.work_ns, record.wait_ns, record.memory_peak_bytes, strict=False
        )
        for entry, (iteration_ns, work_ns, wait_ns, peak) in enumerate(columns):
            if peak is not None:
                self._peaks[entry] = max(self._peaks[entry] or 0, peak)
            if iteration_ns is not None and work_ns is not None and wait_ns is not None:
                self._iteration_ns[entry] += iteration_ns
                self._work_ns[entry] += work_ns
                self._wait_ns[entry] += wait_ns
                self._stretches[entry] += 1

    def _add_straggler(self, record: StragglerRecord) -> None:
        key = (record.first_iteration, record.against, record.ranks[0] if record.ranks else -1)
        self._count += not record.is_over
        if key in self._stragglers or len(self._stragglers) < MAX_STRAGGLERS:
            self._stragglers[key] = record

    def as_dict(self) -> dict[str, Any]:
        """The block of the summary: always the same keys."""
        last = self._last
        peaks = [(peak, entry) for entry, peak in enumerate(self._peaks) if peak is not None]
        peak, fullest = max(peaks, key=lambda pair: pair[0]) if peaks else (None, None)
        return {
            "nodes": len(self._hosts) or None,
            "heard": None if last is None or self._size is None else self._size - last.silent_count,
            "silent_count": None if last is None else last.silent_count,
            "silent": None if last is None else last.silent[:MAX_NAMED],
            "peak_memory_gb": as_gb(peak),
            "peak_memory_ranks": self._ranks_of(fullest),
            **self._work(),
            "straggler_count": self._count,
            "stragglers": [_straggler(record) for record in self._stragglers.values()],
        }

    def _work(self) -> dict[str, Any]:
        """Means over the stretches in which they were known."""
        means = {entry: self._work_ns[entry] / count for entry, count in enumerate(self._stretches) if count}
        slowest = max(means, key=lambda entry: means[entry]) if means else None
        median_ns = statistics.median(means.values()) if means else None
        return {
            "slowest_ranks": self._ranks_of(slowest),
            "slowest_work_ms": None if slowest is None else means[slowest] / NS_PER_MS,
            "median_work_ms": None if median_ns is None else median_ns / NS_PER_MS,
            "work_spread": None if slowest is None or not median_ns else means[slowest] / median_ns - 1,
            "wait_share": share(sum(self._wait_ns), sum(self._iteration_ns)) if means else None,
        }

    def _ranks_of(self, entry: int | None) -> list[int] | None:
        """The rank of an entry, or those that share it, at most `MAX_NAMED`."""
        if entry is None or self._last is None:
            return None
        first = entry * self._last.ranks_per_entry
        count = min(self._last.ranks_per_entry, MAX_NAMED)
        return [rank for rank in range(first, first + count) if self._size is None or rank < self._size]


def _straggler(record: StragglerRecord) -> dict[str, Any]:
    return {
        "first_iteration": record.first_iteration,
        "iteration": record.iteration,
        "is_over": record.is_over,
        "ranks": record.ranks[:MAX_NAMED],
        "hostname": record.hostname,
        "device": record.device,
        "stage": record.stage,
        "phase": record.phase,
        "excess_ms": record.excess_ns / NS_PER_MS,
        "against": record.against,
        "cause": record.cause,
    }
