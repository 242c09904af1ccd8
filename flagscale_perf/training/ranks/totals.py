"""All ranks of a run, folded from the records of them: once, for the summary and for the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from flagscale_perf.spine.averages import median
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.records import Record
from flagscale_perf.training.host import HostStretch, merged
from flagscale_perf.training.phases import share
from flagscale_perf.training.rank_records import (
    NodeRecord,
    RanksRecord,
    SlowStretch,
    StragglerIdentity,
    StragglerRecord,
)
from flagscale_perf.training.ranks.blocks import MAX_RANKS
from flagscale_perf.training.rates import as_gb, highest

MAX_STRAGGLERS = 200
MAX_NAMED = 64
_HOSTS_TOGETHER = 16  # added up at once: one by one takes longer

T = TypeVar("T")


class Place(NamedTuple):
    """A rank's place, as last recorded; None for what a damaged record is too short for."""

    hostname: str
    device: str | None
    stage: int | None


@dataclass(frozen=True)
class SlowRanks(SlowStretch):
    """A slow stretch, as in `StragglerRecord`; of very many ranks the first `MAX_NAMED`."""

    excess_ms: float
    against: str
    cause: str | None
    observed: str | None


@dataclass(frozen=True)
class RanksSummary:
    """The summary's block about ranks.

    Attributes:
        nodes: how many.
        heard: how many ranks something was read of in the last stretch.
        silent_count, silent: how many nothing was read of, and which.
        peak_memory_gb, peak_memory_ranks: the highest memory peak, and whose it is.
        slowest_ranks, slowest_work_ms: the ranks with the longest mean work.
        median_work_ms: of all ranks' mean work.
        work_spread: the slowest ranks' work over the median one, less 1.
        wait_share: waiting, of the iterations of all ranks.
        straggler_count: slow stretches; at most the first `MAX_STRAGGLERS` are in `stragglers`.
    """

    nodes: int | None
    heard: int | None
    silent_count: int | None
    silent: list[int] | None
    peak_memory_gb: float | None
    peak_memory_ranks: list[int] | None
    slowest_ranks: list[int] | None
    slowest_work_ms: float | None
    median_work_ms: float | None
    work_spread: float | None
    wait_share: float | None
    straggler_count: int
    stragglers: list[SlowRanks]


class _Entry:
    """Running sums of one entry of `RanksRecord`, over the stretches in which its work was known."""

    def __init__(self) -> None:
        self.stretches = self.iteration_ns = self.work_ns = self.wait_ns = 0
        self.peak_bytes: int | None = None
        self._hosts: list[HostStretch] = []

    @property
    def host(self) -> HostStretch:
        return merged(self._hosts)

    def add_host(self, host: HostStretch) -> None:
        self._hosts.append(host)
        if len(self._hosts) > _HOSTS_TOGETHER:
            self._hosts = [self.host]

    def add(self, iteration_ns: int | None, work_ns: int | None, wait_ns: int | None) -> None:
        if iteration_ns is not None and work_ns is not None and wait_ns is not None:
            self.stretches += 1
            self.iteration_ns += iteration_ns
            self.work_ns += work_ns
            self.wait_ns += wait_ns


class _Work(NamedTuple):
    """Mean work of the entries, and the number of the slowest one; None where no work is known."""

    slowest: int | None
    slowest_ms: float | None
    median_ms: float | None
    spread: float | None
    wait_share: float | None


class RankTotals:
    """Running sums over a run, in memory that does not grow with it.

    Attributes:
        places: of every rank, by its number.
    """

    def __init__(self, size: int | None) -> None:
        """`size` of the job in ranks; None if not known."""
        self.places: dict[int, Place] = {}
        self._size = size
        self._last: RanksRecord | None = None
        self._entries: list[_Entry] = []
        self._stragglers: dict[StragglerIdentity, StragglerRecord] = {}
        self._straggler_count = 0

    def add(self, record: Record) -> None:
        """The next record of the run; most do not concern ranks."""
        if isinstance(record, NodeRecord):
            self._add_node(record)
        elif isinstance(record, RanksRecord):
            self._add_stretch(record)
        elif isinstance(record, StragglerRecord):
            self._add_straggler(record)

    def _add_node(self, record: NodeRecord) -> None:
        """A node's ranks may come in several records, as they are found one after the other."""
        for number, rank in enumerate(record.ranks):
            if 0 <= rank < MAX_RANKS:
                device, stage = _at(record.devices, number), _at(record.stages, number)
                self.places[rank] = Place(record.hostname, device, stage)

    def _add_stretch(self, record: RanksRecord) -> None:
        """Begins anew with a job of another size, after an elastic restart."""
        if self._last is None or shape_of(record) != shape_of(self._last):
            self._entries = [_Entry() for _ in record.work_ns]
        self._last = record
        columns = zip(
            record.iteration_ns, record.work_ns, record.wait_ns, record.memory_peak_bytes, strict=False
        )
        for entry, (iteration_ns, work_ns, wait_ns, peak_bytes) in zip(self._entries, columns, strict=False):
            entry.add(iteration_ns, work_ns, wait_ns)
            entry.peak_bytes = highest(entry.peak_bytes, peak_bytes)
        for entry, host in zip(self._entries, record.hosts(), strict=True):
            entry.add_host(host)

    def _add_straggler(self, record: StragglerRecord) -> None:
        """Counts all stragglers and keeps the first ones."""
        self._straggler_count += not record.is_over
        if record.identity in self._stragglers or len(self._stragglers) < MAX_STRAGGLERS:
            self._stragglers[record.identity] = record

    def stragglers(self) -> list[StragglerRecord]:
        """The newest record of each slow stretch, in the order in which they began."""
        return list(self._stragglers.values())

    def peaks_bytes(self) -> list[int | None]:
        """The highest memory peak of each entry."""
        return [entry.peak_bytes for entry in self._entries]

    def hosts(self) -> list[HostStretch]:
        """The readings of each entry's host over the run."""
        return [entry.host for entry in self._entries]

    def nodes(self) -> list[tuple[str, list[int], list[str]]]:
        """Host name, ranks and names of devices, each once, of every node, in the order of its first rank."""
        ranks: dict[str, list[int]] = {}
        devices: dict[str, dict[str, None]] = {}
        for rank, place in sorted(self.places.items()):
            ranks.setdefault(place.hostname, []).append(rank)
            if place.device is not None:
                devices.setdefault(place.hostname, {})[place.device] = None
        return [(hostname, found, list(devices.get(hostname, ()))) for hostname, found in ranks.items()]

    def result(self) -> RanksSummary:
        """The summary's part on ranks, so far."""
        last, work = self._last, self._work()
        peaks = {
            number: entry.peak_bytes
            for number, entry in enumerate(self._entries)
            if entry.peak_bytes is not None
        }
        fullest = max(peaks, key=lambda number: peaks[number], default=None)
        silent_count = None if last is None else last.silent_count
        return RanksSummary(
            nodes=len({place.hostname for place in self.places.values()}) or None,
            heard=None if silent_count is None or self._size is None else self._size - silent_count,
            silent_count=silent_count,
            silent=None if last is None else last.silent[:MAX_NAMED],
            peak_memory_gb=None if fullest is None else as_gb(peaks[fullest]),
            peak_memory_ranks=self._ranks_of(fullest),
            slowest_ranks=self._ranks_of(work.slowest),
            slowest_work_ms=work.slowest_ms,
            median_work_ms=work.median_ms,
            work_spread=work.spread,
            wait_share=work.wait_share,
            straggler_count=self._straggler_count,
            stragglers=[_slow_ranks(record) for record in self._stragglers.values()],
        )

    def _work(self) -> _Work:
        known = {number: entry for number, entry in enumerate(self._entries) if entry.stretches}
        if not known:
            return _Work(None, None, None, None, None)
        means = {number: entry.work_ns / entry.stretches for number, entry in known.items()}
        slowest = max(means, key=lambda number: means[number])
        median_ns = median(means.values())
        return _Work(
            slowest=slowest,
            slowest_ms=means[slowest] / NS_PER_MS,
            median_ms=median_ns / NS_PER_MS,
            spread=means[slowest] / median_ns - 1 if median_ns else None,
            wait_share=share(
                sum(entry.wait_ns for entry in known.values()),
                sum(entry.iteration_ns for entry in known.values()),
            ),
        )

    def _ranks_of(self, number: int | None) -> list[int] | None:
        """The rank of an entry, or those that share it, at most `MAX_NAMED`."""
        if number is None or self._last is None:
            return None
        first = number * self._last.ranks_per_entry
        count = min(self._last.ranks_per_entry, MAX_NAMED)
        return [rank for rank in range(first, first + count) if self._size is None or rank < self._size]


def shape_of(record: RanksRecord) -> tuple[int, int]:
    """The same for records whose entries stand for the same ranks."""
    return record.ranks_per_entry, len(record.work_ns)


def _at(values: Sequence[T], place: int) -> T | None:
    return values[place] if place < len(values) else None


def _slow_ranks(record: StragglerRecord) -> SlowRanks:
    few = {"ranks": record.ranks[:MAX_NAMED]}
    return SlowRanks(**record.stretch() | few, excess_ms=record.excess_ns / NS_PER_MS)
