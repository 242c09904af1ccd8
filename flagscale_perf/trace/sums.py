"""Sums over calls of functions and over puts and gets: of a session as it goes, and of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from flagscale_perf.spine.peers.records import NameRecord
from flagscale_perf.spine.records import Record
from flagscale_perf.trace.figures import OTHER, stages_ns
from flagscale_perf.trace.lines import escaped
from flagscale_perf.trace.records import KINDS, ONE, CallRecord, Kind, OperationRecord
from flagscale_perf.trace.spread import Spread

MAX_FUNCTIONS = 64  # kept apart while a session goes on; the others are summed under one name
OTHER_FUNCTIONS = "(other functions)"


@dataclass
class FunctionSums:
    """Calls of one function, in one process or in all. Times in nanoseconds.

    Attributes:
        errors: by name; sampling keeps every failed one, so that each counts once.
        total, get, compute, put: of the calls that ended.
        by_ratio: of the text: get, compute and put by the shares that a call's last line has, and how many.
        rows: samples.
    """

    errors: Counter[str] = field(default_factory=Counter)
    total: Spread = field(default_factory=Spread)
    get: Spread = field(default_factory=Spread)
    compute: Spread = field(default_factory=Spread)
    put: Spread = field(default_factory=Spread)
    by_ratio: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0, 0.0])
    rows: int = 0

    def add(self, call: CallRecord, error: str) -> None:
        """Adds a call; `error`: the name of what it failed with."""
        weight = call.weight_milli / ONE
        self.total.add(call.total_ns, weight)
        self.get.add(call.get_ns, weight)
        if call.compute_ns is not None:
            self.compute.add(call.compute_ns, weight)
        if call.put_ns is not None:
            self.put.add(call.put_ns, weight)
        if error:
            self.errors[error] += 1
        self.rows += call.rows or 0

    def merge(self, other: FunctionSums) -> None:
        """Adds the other's calls."""
        self.errors.update(other.errors)
        for name in ("total", "get", "compute", "put"):
            getattr(self, name).merge(getattr(other, name))
        self.by_ratio = [own + more for own, more in zip(self.by_ratio, other.by_ratio, strict=True)]
        self.rows += other.rows

    def add_shares(self, total_ns: float, percents: Sequence[float], weight: float = 1.0) -> None:
        """Adds the shares of stages in a call's last line."""
        kept = self.by_ratio
        for place, percent in enumerate(percents):
            kept[place] += percent / 100 * total_ns * weight
        kept[3] += 1

    @property
    def calls(self) -> int:
        """Number of calls recorded."""
        return self.total.count

    def parts(self) -> tuple[float, float, float]:
        """Get, compute and put over all calls: from their own lines, or from the shares if lines are
        missing.
        """
        own = (self.get, self.compute, self.put)
        if self.by_ratio[3] and any(part.count < self.by_ratio[3] for part in own):
            return self.by_ratio[0], self.by_ratio[1], self.by_ratio[2]
        return self.get.total, self.compute.total, self.put.total

    @property
    def queue(self) -> float:
        """Get and put together."""
        get, _, put = self.parts()
        return get + put

    @property
    def queue_share(self) -> float | None:
        """Share of get and put in the calls' time; None if there are no calls."""
        return self.queue / self.total.total if self.total.total else None

    @property
    def compute_share(self) -> float | None:
        """Share of the function's own work."""
        return self.parts()[1] / self.total.total if self.total.total else None


@dataclass
class OperationSums:
    """The client's operations of one kind. Times in nanoseconds.

    Attributes:
        errors: as in `FunctionSums`.
        total: of all of them.
        size, rows: of those that succeeded.
        stages: by name, of those that succeeded; those that were measured.
        staged: time of the operations of which any stage was measured.
    """

    errors: Counter[str] = field(default_factory=Counter)
    total: Spread = field(default_factory=Spread)
    size: Spread = field(default_factory=Spread)
    rows: Spread = field(default_factory=Spread)
    stages: dict[str, Spread] = field(default_factory=dict)
    staged: float = 0.0

    def add(self, one: OperationRecord, error: str) -> None:
        """Adds an operation; `error`: the name of what it failed with."""
        weight = one.weight_milli / ONE
        self.total.add(one.total_ns, weight)
        if error:
            self.errors[error] += 1
            return
        self.rows.add(one.rows, weight)
        if one.size_bytes is not None:
            self.size.add(one.size_bytes, weight)
        times = stages_ns(one)
        self.staged += one.total_ns * weight if times else 0
        for name, took_ns in times.items():
            self.stages.setdefault(name, Spread()).add(took_ns, weight)

    def waterfall(self) -> list[tuple[str, float, float]]:
        """For each stage: its name, its time in all operations, and its share of the time of those with a
        measured stage; last, the time outside of the stages.
        """
        rows = [(name, spread.total, spread.total / self.staged) for name, spread in self.stages.items()]
        if not rows or not self.staged:
            return []
        left = max(0.0, self.staged - sum(total for _, total, _ in rows))
        return [*rows, (OTHER, left, left / self.staged)]


class TraceTotals:
    """Sums of a session as it goes.

    Attributes:
        operations: by kind.
        functions: by name, `MAX_FUNCTIONS` at most.
    """

    def __init__(self) -> None:
        self.operations: dict[Kind, OperationSums] = {}
        self.functions: dict[str, FunctionSums] = {}
        self._names: dict[tuple[int, int], str] = {}

    def add(self, record: Record) -> None:
        """Adds the next record of the session."""
        if isinstance(record, NameRecord):
            self._names[record.process, record.number] = record.text
        elif isinstance(record, OperationRecord) and record.operation in KINDS:
            sums = self.operations.setdefault(Kind(record.operation), OperationSums())
            sums.add(record, self._error(record))
        elif isinstance(record, CallRecord):
            self._function(record).add(record, self._error(record))

    def _error(self, record: OperationRecord | CallRecord) -> str:
        return (self._names.get((record.process, record.error)) or "?") if record.error else ""

    def _function(self, call: CallRecord) -> FunctionSums:
        name = escaped(self._names.get((call.process, call.function), "")) or "N/A"
        if name not in self.functions and len(self.functions) >= MAX_FUNCTIONS:
            name = OTHER_FUNCTIONS
        return self.functions.setdefault(name, FunctionSums())
