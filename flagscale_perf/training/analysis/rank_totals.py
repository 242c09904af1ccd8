"""The ranks' records of a run folded into a matrix and a list of stragglers. Memory does not grow with the
length of the run.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S
from flagscale_perf.spine.samples import ThinnedRows
from flagscale_perf.training.analysis.tables import RankEntry, Ranks, Straggler
from flagscale_perf.training.ranks.blocks import MAX_RANKS
from flagscale_perf.training.ranks.records import NodeRecord, RanksRecord, StragglerRecord
from flagscale_perf.training.rates import as_gb

MAX_STRETCHES = 200
MAX_STRAGGLERS = 200

Row = Sequence[float | None]
T = TypeVar("T")


class _Place(NamedTuple):
    """A rank's, as last told; None for what the record is too short to tell."""

    hostname: str
    device: str | None
    stage: int | None


class RankTotals:
    """Folds the records of all ranks."""

    def __init__(self) -> None:
        self._places: dict[int, _Place] = {}
        self._stretches: ThinnedRows[RanksRecord] = ThinnedRows(MAX_STRETCHES)
        self._stragglers: dict[tuple[int, tuple[int, ...]], StragglerRecord] = {}

    def add_node(self, record: NodeRecord) -> None:
        """What is told of some of a node's ranks: not all of them need have been found at once."""
        for number, rank in enumerate(record.ranks):
            if 0 <= rank < MAX_RANKS:
                self._places[rank] = _Place(
                    record.hostname, _at(record.devices, number), _at(record.stages, number)
                )

    def nodes(self) -> list[tuple[str, list[int], list[str]]]:
        """Host name, ranks and names of devices, each once, of every node, in the order of its first rank."""
        ranks: dict[str, list[int]] = {}
        devices: dict[str, dict[str, None]] = {}
        for rank, place in sorted(self._places.items()):
            ranks.setdefault(place.hostname, []).append(rank)
            if place.device is not None:
                devices.setdefault(place.hostname, {})[place.device] = None
        return [(hostname, found, list(devices.get(hostname, ()))) for hostname, found in ranks.items()]

    def add_ranks(self, record: RanksRecord) -> None:
        """The next stretch; those of a job of another size, before an elastic restart, are left out."""
        rows = self._stretches.rows()
        if rows and (rows[-1].ranks_per_entry, len(rows[-1].work_ns)) != (
            record.ranks_per_entry,
            len(record.work_ns),
        ):
            self._stretches = ThinnedRows(MAX_STRETCHES)
        self._stretches.add(record)

    def add_straggler(self, record: StragglerRecord) -> None:
        """A slow rank, or what has become of it; of very many the first ones are kept."""
        key = record.first_iteration, tuple(record.ranks)
        if key in self._stragglers or len(self._stragglers) < MAX_STRAGGLERS:
            self._stragglers[key] = record

    def matrix(self, world_size: int | None) -> Ranks | None:
        """None where no rank but the first told anything."""
        rows = self._stretches.rows()
        if not rows:
            return None
        iteration, work = [_ms(row.iteration_ns) for row in rows], [_ms(row.work_ns) for row in rows]
        wait, data = [_ms(row.wait_ns) for row in rows], [_ms(row.data_ns) for row in rows]
        memory: list[list[float | None]] = [[as_gb(size) for size in row.memory_peak_bytes] for row in rows]
        last = rows[-1]
        return Ranks(
            entries=self._entries(last, world_size),
            stretches=[[row.first_iteration, row.iteration] for row in rows],
            iteration_ms=iteration,
            work_ms=work,
            wait_ms=wait,
            data_ms=data,
            memory_peak_gb=memory,
            median_iteration_ms=_medians(iteration),
            median_work_ms=_medians(work),
            median_wait_ms=_medians(wait),
            median_data_ms=_medians(data),
            peak_gb=[max(known, default=None) for known in _columns(memory)],
            silent=last.silent,
            silent_count=last.silent_count,
        )

    def stragglers(self, last_iteration: int | None) -> list[Straggler]:
        """Oldest first; one that is not over lasts until `last_iteration`."""
        return [_straggler(record, last_iteration or 0) for record in self._stragglers.values()]

    def _entries(self, record: RanksRecord, world_size: int | None) -> list[RankEntry]:
        firsts = [number * record.ranks_per_entry for number in range(len(record.work_ns))]
        return [
            self._entry(first, min(first + record.ranks_per_entry, max(world_size or 0, first + 1)) - 1)
            for first in firsts
        ]

    def _entry(self, first_rank: int, last_rank: int) -> RankEntry:
        place = self._places.get(first_rank)
        return RankEntry(
            first_rank,
            last_rank,
            *((None, None, None) if place is None else (place.hostname, place.device, place.stage)),
        )


def _at(values: list[T], place: int) -> T | None:
    return values[place] if place < len(values) else None


def _ms(durations_ns: Sequence[int | None]) -> list[float | None]:
    return [None if dur_ns is None else dur_ns / NS_PER_MS for dur_ns in durations_ns]


def _columns(rows: Sequence[Row]) -> list[list[float]]:
    return [[value for value in column if value is not None] for column in zip(*rows, strict=False)]


def _medians(rows: Sequence[Row]) -> list[float | None]:
    return [statistics.median(known) if known else None for known in _columns(rows)]


def _straggler(record: StragglerRecord, last_iteration: int) -> Straggler:
    iteration = record.iteration if record.is_over else max(record.iteration, last_iteration)
    return Straggler(
        first_iteration=record.first_iteration,
        iteration=iteration,
        is_over=record.is_over,
        ranks=record.ranks,
        hostname=record.hostname,
        device=record.device,
        stage=record.stage,
        phase=record.phase,
        excess_ms=record.excess_ns / NS_PER_MS,
        iteration_ms=record.iteration_ns / NS_PER_MS,
        lost_s=record.excess_ns * max(0, iteration - record.first_iteration + 1) / NS_PER_S,
        against=record.against,
        cause=record.cause,
    )
