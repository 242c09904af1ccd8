"""Which puts made what a get got: links of spans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from flagscale_perf.spine.peers.records import NameRecord, ProcessRecord
from flagscale_perf.spine.records import Record
from flagscale_perf.trace.records import Kind, OperationRecord, RowsRecord

MAX_LINKS = 128  # of one get, the newest: what OpenTelemetry keeps of a span's
Key = tuple[int, int]  # number of the process, and of the operation in it
_Sample = tuple[str, int]


class _Access(NamedTuple):
    """An operation on samples.

    Attributes:
        at_ns: when a put's could be got, or a get's were asked for.
        is_get: of two at the same instant the put counts first.
        key: the operation.
        who: what its process is; the workers of a group are the same.
        partition: name of it.
        ranges: first index and count of each range of samples.
    """

    at_ns: int
    is_get: bool
    key: Key
    who: str
    partition: str
    ranges: tuple[int, ...]

    @property
    def samples(self) -> list[_Sample]:
        """Each by its partition and its index there."""
        pairs = zip(self.ranges[::2], self.ranges[1::2], strict=True)
        return [(self.partition, row) for first, count in pairs for row in range(first, first + count)]


def links_of(records: Iterable[Record]) -> dict[Key, tuple[Key, ...]]:
    """Of each get of what a put of this run made, those puts, oldest first.

    A sample is put in parts: of each process the newest put counts. Its index is used again for another one
    once the last who gets samples has had it.
    """
    accesses = sorted(_accesses(records))
    last = _last_consumer(accesses)
    newest: dict[_Sample, dict[int, tuple[int, Key]]] = {}
    over: set[_Sample] = set()
    found: dict[Key, tuple[Key, ...]] = {}
    for access in accesses:
        samples = access.samples
        if access.is_get:
            puts = {put for sample in samples for put in newest.get(sample, {}).values()}
            if puts:
                found[access.key] = tuple(key for _, key in sorted(puts)[-MAX_LINKS:])
            if access.who == last:
                over.update(samples)
            continue
        for sample in samples:
            if sample in over:
                over.remove(sample)
                newest.pop(sample, None)
            newest.setdefault(sample, {})[access.key[0]] = (access.at_ns, access.key)
    return found


def _last_consumer(accesses: Iterable[_Access]) -> str | None:
    """Who is the last to get most of the samples; None where nobody gets any."""
    last: dict[_Sample, str] = {}
    for access in accesses:
        if access.is_get:
            last.update(dict.fromkeys(access.samples, access.who))
    return max(Counter(last.values()).items(), key=lambda pair: pair[1], default=(None, 0))[0]


def _accesses(records: Iterable[Record]) -> Iterator[_Access]:
    names: dict[Key, str] = {}
    titles: dict[int, str] = {}
    ranges: dict[Key, tuple[int, ...]] = {}
    for record in records:
        match record:
            case NameRecord():
                names[record.process, record.number] = record.text
            case ProcessRecord():
                titles[record.number] = record.title
            case RowsRecord():
                key = (record.process, record.number)
                ranges[key] = ranges.get(key, ()) + tuple(record.ranges)
            case OperationRecord(error=0):
                key = (record.process, record.number)
                is_get = record.operation == Kind.GET
                # A put's tags are stored after the controller was told that its samples are there.
                there_ns = record.start_ns + (0 if is_get else record.total_ns - (record.tags_ns or 0))
                partition = names.get((record.process, record.partition), "?")
                who = titles.get(record.process) or str(record.process)
                rows = ranges.pop(key, ()) or _whole(record)
                yield _Access(there_ns, is_get, key, who, partition, rows)


def _whole(operation: OperationRecord) -> tuple[int, ...]:
    first, last = operation.first_row, operation.last_row
    return () if first is None or last is None else (first, last - first + 1)
