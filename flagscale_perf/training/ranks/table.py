"""Every rank's time and memory side by side, as a `RanksRecord` has them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from flagscale_perf.spine.averages import median_known
from flagscale_perf.training.host import HostStretch, cpu_share, merged
from flagscale_perf.training.rank_records import MAX_ENTRIES, RanksRecord
from flagscale_perf.training.ranks.blocks import Block
from flagscale_perf.training.rates import highest

MAX_SILENT = 64
MAX_ROUNDS = 8


class _Row(NamedTuple):
    """One rank's times per step, None where they are not known, and what was read of its host."""

    iteration_ns: int | None = None
    work_ns: int | None = None
    wait_ns: int | None = None
    data_ns: int | None = None
    host: HostStretch = HostStretch()


class _Round(NamedTuple):
    first_iteration: int
    iteration: int
    rows: dict[int, _Row]


class RanksTable:
    """Collects rounds of blocks, of many the newest ones, until they are taken."""

    def __init__(self, size: int) -> None:
        """`size` of the job in ranks."""
        self._size = size
        self._per_entry = -(-size // MAX_ENTRIES)
        self._rounds: deque[_Round] = deque(maxlen=MAX_ROUNDS)
        self._memory: dict[int, int | None] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing has come since it was last taken."""
        return not self._rounds

    def add(self, blocks: Mapping[int, Block]) -> None:
        """The blocks with one number, by rank; at least one."""
        for rank, block in blocks.items():
            self._memory[rank] = highest(self._memory.get(rank), block.memory_peak_bytes)
        first = min(block.first_iteration for block in blocks.values())
        last = max(block.iteration for block in blocks.values())
        self._rounds.append(_Round(first, last, {rank: _row(block) for rank, block in blocks.items()}))

    def take(self, on_the_way: Collection[int] = ()) -> RanksRecord:
        """The record of what was collected; begins the next stretch. Not to be called while `is_empty`.

        `on_the_way`: ranks that are not called silent though nothing came from them in this stretch.
        """
        rows = self._median_rows()
        entries = [
            range(start, min(start + self._per_entry, self._size))
            for start in range(0, self._size, self._per_entry)
        ]
        slowest = [max((rows.get(rank, _Row()) for rank in ranks), key=_order) for ranks in entries]
        iteration_ns, work_ns, wait_ns, data_ns, _ = map(list, zip(*slowest, strict=True))
        hosts = [
            max(
                (rows.get(rank, _Row()).host for rank in ranks),
                key=lambda host: (host.host_ns is not None, cpu_share(host)),
            )
            for ranks in entries
        ]
        silent = sorted(set(range(self._size)) - rows.keys() - set(on_the_way))
        record = RanksRecord(
            first_iteration=self._rounds[0].first_iteration,
            iteration=self._rounds[-1].iteration,
            ranks_per_entry=self._per_entry,
            iteration_ns=iteration_ns,
            work_ns=work_ns,
            wait_ns=wait_ns,
            data_ns=data_ns,
            memory_peak_bytes=[highest(*map(self._memory.get, ranks)) for ranks in entries],
            silent=silent[:MAX_SILENT],
            silent_count=len(silent),
            host=dict(zip(HostStretch._fields, map(list, zip(*hosts, strict=True)), strict=True))
            if any(host.host_ns for host in hosts)
            else None,
        )
        self._rounds.clear()
        self._memory.clear()
        return record

    def _median_rows(self) -> dict[int, _Row]:
        rows: dict[int, list[_Row]] = defaultdict(list)
        for round_ in self._rounds:
            for rank, row in round_.rows.items():
                rows[rank].append(row)
        return {rank: _median_row(found) for rank, found in rows.items()}


def _row(block: Block) -> _Row:
    host = block.host if block.steps else HostStretch()
    return _Row(block.iteration_ns, block.work_ns, block.wait_ns, block.data_ns, host)


def _median_row(rows: Sequence[_Row]) -> _Row:
    if len(rows) == 1:
        return rows[0]
    *times, hosts = zip(*rows, strict=True)
    return _Row._make([*map(median_known, times), merged(hosts)])


def _order(row: _Row) -> tuple[bool, int, int]:
    """Longest work last; where no work is known, the longest iteration."""
    return row.iteration_ns is not None, row.work_ns or 0, row.iteration_ns or 0
