"""Which puts made what a get got: links of spans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from flagscale_perf.spine.records import Record
from flagscale_perf.trace.records import Kind, NameRecord, OperationRecord, RowsRecord

MAX_LINKS = 128  # of one get, the newest: what OpenTelemetry keeps of a span's
Key = tuple[int, int]  # number of the process, and of the operation in it


class _Access(NamedTuple):
    """An operation on samples.

    Attributes:
        at_ns: when a put's could be got, or a get's were asked for.
        is_get: of two at the same instant the put counts first.
        key: the operation.
        partition: name of it.
        ranges: first index and count of each range of samples.
    """

    at_ns: int
    is_get: bool
    key: Key
    partition: str
    ranges: tuple[int, ...]


def links_of(records: Iterable[Record]) -> dict[Key, tuple[Key, ...]]:
    """Of each get of what a put of this run made, those puts, oldest first.

    A sample is put in parts, each by another process: of each process the newest put of the sample counts, so
    that what an index was used for before has no part in it.
    """
    newest: dict[tuple[str, int], dict[int, tuple[int, Key]]] = {}
    found: dict[Key, tuple[Key, ...]] = {}
    for access in sorted(_accesses(records)):
        samples = [(access.partition, row) for row in _rows(access.ranges)]
        if access.is_get:
            puts = {put for sample in samples for put in newest.get(sample, {}).values()}
            if puts:
                found[access.key] = tuple(key for _, key in sorted(puts)[-MAX_LINKS:])
        else:
            for sample in samples:
                newest.setdefault(sample, {})[access.key[0]] = (access.at_ns, access.key)
    return found


def _accesses(records: Iterable[Record]) -> Iterator[_Access]:
    names: dict[Key, str] = {}
    ranges: dict[Key, tuple[int, ...]] = {}
    for record in records:
        match record:
            case NameRecord():
                names[record.process, record.number] = record.text
            case RowsRecord():
                key = (record.process, record.number)
                ranges[key] = ranges.get(key, ()) + tuple(record.ranges)
            case OperationRecord(error=0):
                key = (record.process, record.number)
                is_get = record.operation == Kind.GET
                # A put's tags are stored after the controller was told that its samples are there.
                there_ns = record.start_ns + (0 if is_get else record.total_ns - (record.tags_ns or 0))
                partition = names.get((record.process, record.partition), "?")
                yield _Access(there_ns, is_get, key, partition, ranges.pop(key, ()) or _whole(record))


def _whole(operation: OperationRecord) -> tuple[int, ...]:
    first, last = operation.first_row, operation.last_row
    return () if first is None or last is None else (first, last - first + 1)


def _rows(ranges: tuple[int, ...]) -> Iterator[int]:
    for first, count in zip(ranges[::2], ranges[1::2], strict=True):
        yield from range(first, first + count)
