"""Puts and gets of samples, and the calls they were made in, as the input of the lineage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.trace.records import (
    CallRecord,
    ClearRecord,
    KeysRecord,
    Kind,
    OperationRecord,
    WaitRecord,
)

CLOCKS_AGREE_NS = NS_PER_S  # ours: of machines whose clocks are kept by NTP or PTP
MAX_KEPT = 1_000_000  # puts and gets, and calls: later ones are summed up but not joined
MAX_SAMPLES = 100_000_000  # of puts, gets and clears together: likewise

Ranges = tuple[tuple[int, int], ...]  # first index and count of each


class Transfer(NamedTuple):
    """A put or get that succeeded.

    Attributes:
        kind: of it; an update is a put.
        process: who, a label.
        call: number of the call it was made in; 0 outside of any.
        start_ns, end_ns: on the clock that all processes of the report have in common.
        ready_ns: from when another process may have got the samples; of a get its start.
        partition: name of it.
        ranges: of samples; None where they are not known.
        rows: samples.
        fields: of them; None where they are not known.
        step: where the batch says so.
        weight: how many operations it stands for.
        versions: of the weights that made its samples, the oldest and the newest; None where not known.
        size_bytes, unit_ns: of its record.
    """

    kind: Kind
    process: str
    call: int
    start_ns: int
    end_ns: int
    ready_ns: int
    partition: str
    ranges: Ranges | None
    rows: int
    fields: frozenset[str] | None
    step: int | None
    weight: float
    versions: tuple[int, int] | None = None
    size_bytes: int | None = None
    unit_ns: int | None = None


class Ask(NamedTuple):
    """A consumer asked for samples from its first request until it was told which."""

    process: str
    start_ns: int
    end_ns: int


def can_have(get: Transfer, put: Transfer) -> bool:
    """Whether the get may have samples of a put that was done after it began: then the put had begun before
    the get ended, as far as the clocks of their machines agree.
    """
    slack_ns = 0 if _machine(get.process) == _machine(put.process) else CLOCKS_AGREE_NS
    return put.start_ns <= get.end_ns + slack_ns


def _machine(process: str) -> str:
    """The host in a process's label, where there are several; containers of one share its clock."""
    return process.rpartition("@")[2].partition("/")[0] if "@" in process else ""


class What(NamedTuple):
    """The content of an operation: the partition, the samples if they have a record of their own, the fields
    and the versions of the weights that made them, if they are known.
    """

    partition: str
    ranges: Ranges | None = None
    fields: frozenset[str] | None = None
    versions: tuple[int, int] | None = None


class Clear(NamedTuple):
    """Samples taken out of the queue: later puts of these indexes are other samples.

    Attributes:
        at_ns: on the same clock.
        partition: name of it.
        ranges: of samples; None for all of the partition.
        is_known: whether these, and all of these, were cleared: not where it failed, or where there are more
            ranges than are kept.
    """

    at_ns: int
    partition: str
    ranges: Ranges | None
    is_known: bool


class Work(NamedTuple):
    """A call, on the same clock."""

    process: str
    function: str
    start_ns: int
    end_ns: int
    get_ns: int
    compute_ns: int | None
    put_ns: int | None
    rows: int | None


class Transfers:
    """The transfers kept for the lineage.

    Attributes:
        transfers: puts and gets.
        works: calls, by process and number.
        clears: of samples.
        keys: by partition and number of the key, when each index was given it.
        asks: what came of requests for samples.
        left_out: puts and gets beyond `MAX_KEPT`, or with samples beyond `MAX_SAMPLES`.
    """

    def __init__(self) -> None:
        self.transfers: list[Transfer] = []
        self.works: dict[tuple[str, int], Work] = {}
        self.clears: list[Clear] = []
        self.keys: dict[tuple[str, int], dict[int, int]] = {}
        self.asks: list[Ask] = []
        self._asking: dict[str, int] = {}
        self.left_out = self._samples = 0

    def add(self, one: OperationRecord, process: str, what: What) -> None:
        """Adds the next operation."""
        if one.error:
            return
        ranges = what.ranges if what.ranges is not None else _span(one)
        if len(self.transfers) == MAX_KEPT or not self._has_room(ranges):
            self.left_out += 1
            return
        # an update writes fields of samples that are there, as a later put of them does
        kind, start_ns = Kind.GET if one.operation == Kind.GET else Kind.PUT, one.start_ns
        end_ns = start_ns + one.total_ns
        # The controller knows of a put's samples while the put still waits for its answer, and then for tags.
        late_ns = (one.notify_ns or 0) + (one.tags_ns or 0) if kind is Kind.PUT else 0
        self.transfers.append(
            Transfer(
                kind,
                process,
                one.call,
                start_ns,
                end_ns,
                start_ns if kind is Kind.GET else end_ns - late_ns,
                what.partition,
                ranges,
                one.rows,
                what.fields,
                one.step,
                one.weight_milli / 1000,
                what.versions,
                one.size_bytes,
                one.unit_ns,
            )
        )

    def add_keys(self, record: KeysRecord, partition: str) -> None:
        """Adds keys, the latest time for each index."""
        for index, key in pairs_of(record.keys):
            if (partition, key) in self.keys or len(self.keys) < MAX_KEPT:
                self.keys.setdefault((partition, key), {})[index] = record.at_ns

    def add_wait(self, wait: WaitRecord, process: str) -> None:
        """Adds the next request for samples."""
        since_ns = self._asking.setdefault(process, wait.start_ns)
        if wait.rows and not wait.error and len(self.asks) < MAX_KEPT:
            self.asks.append(Ask(process, since_ns, wait.start_ns + wait.total_ns))
            del self._asking[process]

    def add_call(self, call: CallRecord, process: str, function: str) -> None:
        """Adds the next call."""
        if len(self.works) < MAX_KEPT:
            span = call.start_ns, call.start_ns + call.total_ns
            self.works[process, call.number] = Work(
                process, function, *span, call.get_ns, call.compute_ns, call.put_ns, call.rows
            )

    def add_clear(self, one: ClearRecord, partition: str) -> None:
        """Adds the next clear, or the next part of one."""
        ranges = None if one.is_partition else pairs_of(one.ranges)
        is_known = not one.error and (bool(one.is_partition) or not one.is_cut)
        if not self._has_room(ranges):
            ranges, is_known = (), False
        self.clears.append(Clear(one.start_ns, partition, ranges, is_known))

    def _has_room(self, ranges: Ranges | None) -> bool:
        """Whether that many samples may still be followed one by one; if so, they are counted."""
        samples = sum(count for _, count in ranges or ())
        if self._samples + samples > MAX_SAMPLES:
            return False
        self._samples += samples
        return True

    @property
    def began_ns(self) -> int:
        """When the first call began: before, the job's processes are starting. 0 without calls."""
        return min((work.start_ns for work in self.works.values()), default=0)

    def function_of(self, transfer: Transfer) -> str:
        """The function in which the transfer was made; outside of any, the label of its process."""
        work = self.works.get((transfer.process, transfer.call))
        return work.function if work is not None else transfer.process

    def consumer_of(self, transfer: Transfer) -> str:
        """The same for who gets: outside of any function what its process is, as the ranks of a model are one
        consumer.
        """
        work = self.works.get((transfer.process, transfer.call))
        return work.function if work is not None else title_of(transfer.process)


def title_of(process: str) -> str:
    """What a process is, without its number and its machine."""
    return process.partition("@")[0].rpartition(" ")[0] or process


def pairs_of(ranges: Sequence[int]) -> Ranges:
    """Pairs from alternating first indexes and counts."""
    return tuple(zip(ranges[::2], ranges[1::2], strict=False))


def _span(one: OperationRecord) -> Ranges | None:
    """All samples from the first to the last; None if the rows are not contiguous."""
    if not one.rows:
        return ()
    if one.first_row is None or one.last_row is None or one.last_row - one.first_row + 1 != one.rows:
        return None
    return ((one.first_row, one.rows),)
