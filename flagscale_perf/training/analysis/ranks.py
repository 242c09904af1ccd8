"""Every rank over the run as a matrix, and its stragglers, for the report. What the summary has, too, comes
from the same `RankTotals`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flagscale_perf.spine.averages import median
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.units import as_ms
from flagscale_perf.training.analysis.tables import RankEntry, Ranks, Straggler
from flagscale_perf.training.phases import share
from flagscale_perf.training.rank_records import RanksRecord, StragglerRecord
from flagscale_perf.training.ranks.totals import RankTotals, shape_of
from flagscale_perf.training.rates import as_gb
from flagscale_perf.training.samples import ThinnedRows

MAX_STRETCHES = 200

Row = Sequence[float | None]


class RankMatrix:
    """Keeps stretches of all ranks: of a long run the slowest of each few, so that memory does not
    grow with it.
    """

    def __init__(self) -> None:
        self._stretches = ThinnedRows(MAX_STRETCHES, _longest_ns)

    def add(self, record: RanksRecord) -> None:
        """The next stretch; those of a job of another size, before an elastic restart, are left out."""
        rows = self._stretches.rows()
        if rows and shape_of(rows[-1]) != shape_of(record):
            self._stretches = ThinnedRows(MAX_STRETCHES, _longest_ns)
        self._stretches.add(record)

    def result(self, totals: RankTotals, world_size: int | None) -> Ranks | None:
        """`totals` of the same records. None where nothing was recorded of other ranks."""
        rows = self._stretches.rows()
        if not rows:
            return None
        times: dict[str, Any] = {
            f"{name}_ms": [list(map(as_ms, getattr(row, f"{name}_ns"))) for row in rows]
            for name in ("iteration", "work", "wait", "data")
        }
        medians: dict[str, Any] = {f"median_{name}": _medians(column) for name, column in times.items()}
        last = rows[-1]
        return Ranks(
            entries=_entries(last, totals, world_size),
            stretches=[[row.first_iteration, row.iteration] for row in rows],
            **times,
            memory_peak_gb=[[as_gb(size) for size in row.memory_peak_bytes] for row in rows],
            cpu_wait_share=[
                [share(host.run_delay_ns, host.host_ns or 0) for host in row.hosts()] for row in rows
            ],
            **medians,
            peak_gb=[as_gb(peak_bytes) for peak_bytes in totals.peaks_bytes()],
            silent=last.silent,
            silent_count=last.silent_count,
        )


def _longest_ns(record: RanksRecord) -> int:
    return max((took_ns for took_ns in record.iteration_ns if took_ns is not None), default=0)


def stragglers_of(totals: RankTotals, last_iteration: int | None) -> list[Straggler]:
    """Oldest first; one that is not over lasts until `last_iteration`."""
    return [_straggler(record, last_iteration or 0) for record in totals.stragglers()]


def _entries(record: RanksRecord, totals: RankTotals, world_size: int | None) -> list[RankEntry]:
    """The last entry may stand for fewer ranks than the others."""
    entries = []
    for number, host in enumerate(totals.hosts()):
        first = number * record.ranks_per_entry
        end = min(first + record.ranks_per_entry, max(world_size or 0, first + 1))
        hostname, device, stage = totals.places.get(first, (None, None, None))
        whole_ns = host.host_ns or 0
        cpu, memory = share(host.run_delay_ns, whole_ns), share(host.memory_stall_ns, whole_ns)
        entries.append(RankEntry(first, end - 1, hostname, device, stage, host.cores, cpu, memory))
    return entries


def _medians(rows: Sequence[Row]) -> list[float | None]:
    columns = ([value for value in column if value is not None] for column in zip(*rows, strict=False))
    return [median(known) if known else None for known in columns]


def _straggler(record: StragglerRecord, last_iteration: int) -> Straggler:
    iteration = record.iteration if record.is_over else max(record.iteration, last_iteration)
    return Straggler(
        **record.stretch() | {"iteration": iteration},
        excess_ms=record.excess_ns / NS_PER_MS,
        iteration_ms=record.iteration_ns / NS_PER_MS,
    )
