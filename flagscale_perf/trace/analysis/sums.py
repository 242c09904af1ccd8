"""Sums over calls and operations, whether they come from records or from lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from flagscale_perf.trace.analysis.columns import MIB, Operations
from flagscale_perf.trace.analysis.model import Shapes
from flagscale_perf.trace.analysis.spread import Distinct, Spread
from flagscale_perf.trace.analysis.waits import Waits
from flagscale_perf.trace.records import CallRecord, Kind, OperationRecord, WaitRecord

STAGES = {
    Kind.PUT: ("select", "serialize", "unit", "notify", "tags"),
    Kind.GET: ("unit", "decode", "pack"),
}
OTHER = "other"
NS = 1_000_000_000
MAX_FUNCTIONS = 10_000  # over all processes; more than these are ids rather than functions
MANY = "(more)"
_SLOW = 100 * MIB  # bytes a second
_NO_WAITS: Mapping[str, int] = {}


@dataclass
class FunctionSums:
    """Calls of one function, in one process or in all. Times in nanoseconds.

    Attributes:
        errors: by name.
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
        errors: by name.
        total: of all of them.
        speed: bytes a second of those whose bytes are known.
        size, rows, fields: of an operation.
        slow: of those with a speed, how many (by weight) lie below the limit of the requirement.
        stages: by name; those that were measured.
        measured: by name, time of the operations in which the stage was measured.
        units: by the storage unit that was waited for longest, how long.
        waits: by storage unit, of the operations that asked several: how long each was waited for.
        held: by the unit that was waited for longest there, how much longer than for the next.
        shapes: for the cost model.
    """

    errors: Counter[str] = field(default_factory=Counter)
    total: Spread = field(default_factory=Spread)
    speed: Spread = field(default_factory=Spread)
    size: Spread = field(default_factory=Spread)
    rows: Spread = field(default_factory=Spread)
    fields: Spread = field(default_factory=Spread)
    slow: float = 0.0
    stages: dict[str, Spread] = field(default_factory=dict)
    staged: float = 0.0
    units: dict[str, Spread] = field(default_factory=dict)
    waits: dict[str, Spread] = field(default_factory=dict)
    held: dict[str, Spread] = field(default_factory=dict)
    shapes: Shapes = field(default_factory=Shapes)

    def waterfall(self) -> list[tuple[str, float, float]]:
        """For each stage: its name, the time of all operations in which it was measured, and its share of
        that; last, the time outside of the stages.
        """
        rows = [(name, spread.total, spread.total / self.staged) for name, spread in self.stages.items()]
        if not rows or not self.staged:
            return []
        left = max(0.0, self.staged - sum(total for _, total, _ in rows))
        return [*rows, (OTHER, left, left / self.staged)]


class Sums:
    """All sums, in memory that depends on the number of functions and processes.

    Attributes:
        by_process: of calls, by (process, function).
        operations: by kind.
        operations_by: by (process, kind), their durations.
        waits: of consumers for samples, by (process, task).
        traces: different ids.
        without_id: calls that have none.
        first_ns, last_ns: of the records; None where times of day are not known.
    """

    def __init__(self) -> None:
        self.by_process: dict[tuple[str, str], FunctionSums] = {}
        self.operations = {kind: OperationSums() for kind in Kind}
        self.operations_by: dict[tuple[str, Kind], Spread] = {}
        self.waits: dict[tuple[str, str], Waits] = {}
        self.traces = Distinct()
        self.without_id = 0
        self.first_ns: int | None = None
        self.last_ns = 0

    @property
    def functions(self) -> dict[str, FunctionSums]:
        """Calls by function over all processes, the longest first."""
        functions: dict[str, FunctionSums] = {}
        for (_, name), one in self.by_process.items():
            functions.setdefault(name, FunctionSums()).merge(one)
        return dict(sorted(functions.items(), key=lambda item: -item[1].total.total))

    @property
    def calls(self) -> int:
        """Number of calls that ended."""
        return sum(one.calls for one in self.by_process.values())

    @property
    def count(self) -> int:
        """Number of operations."""
        return sum(one.total.count for one in self.operations.values())

    @property
    def trace_count(self) -> int:
        """Number of distinct ids; each call without one counts as a trace of its own."""
        return self.traces.count + self.without_id

    def overall(self) -> tuple[float, float, float, float]:
        """Total, get, compute and put over all calls."""
        parts = [one.parts() for one in self.by_process.values()]
        total = sum(one.total.total for one in self.by_process.values())
        return total, sum(p[0] for p in parts), sum(p[1] for p in parts), sum(p[2] for p in parts)

    def of(self, process: str, function: str) -> FunctionSums:
        """The sums of a function in a process."""
        one = self.by_process.get((process, function))
        if one is None:
            if len(self.by_process) >= MAX_FUNCTIONS:
                process, function = MANY, MANY
            one = self.by_process.setdefault((process, function), FunctionSums())
        return one

    def trace(self, trace_id: bytes) -> None:
        """Counts a call's id."""
        if trace_id:
            self.traces.add(int.from_bytes(blake2b(trace_id, digest_size=8).digest()))
        else:
            self.without_id += 1

    def add_call(self, call: CallRecord, process: str, function: str, error: str) -> None:
        """Adds a call record, with its names resolved."""
        weight = call.weight_milli / 1000
        one = self.of(process, function)
        one.total.add(call.total_ns, weight)
        one.get.add(call.get_ns, weight)
        if call.compute_ns is not None:
            one.compute.add(call.compute_ns, weight)
        if call.put_ns is not None:
            one.put.add(call.put_ns, weight)
        if error:
            one.errors[error] += 1
        one.rows += call.rows or 0
        self.trace(call.trace_id.encode("utf-8", "surrogatepass"))
        self._seen(call.start_ns, call.total_ns)

    def add_operation(
        self, one: OperationRecord, process: str, unit: str, error: str, waits: Mapping[str, int] = _NO_WAITS
    ) -> None:
        """Adds an operation record, with its names resolved; `waits` by storage unit, if it asked several."""
        kind, weight = Kind(one.operation), one.weight_milli / 1000
        sums = self.operations[kind]
        self._add(sums, kind, process, (one.total_ns,), weight)
        self._seen(one.start_ns, one.total_ns)
        if error:
            sums.errors[error] += 1
            return
        self._sizes(sums, (one.total_ns,), (one.size_bytes,), weight)
        sums.rows.add(one.rows, weight)
        sums.fields.add(one.fields, weight)
        if one.size_bytes is not None:
            sums.shapes.add(one.rows, one.fields, one.size_bytes, one.total_ns)
        times = [(name, getattr(one, f"{name}_ns")) for name in STAGES[kind]]
        if all(took is None for _, took in times):
            return
        sums.staged += one.total_ns * weight
        for name, took in times:
            if took is not None:
                sums.stages.setdefault(name, Spread()).add(took, weight)
        if unit and one.slowest_unit_ns is not None:
            sums.units.setdefault(unit, Spread()).add(one.slowest_unit_ns, weight)
        for name, wait_ns in waits.items():
            sums.waits.setdefault(name, Spread()).add(wait_ns, weight)
        if len(waits) > 1:
            (last, longest_ns), (_, next_ns) = sorted(waits.items(), key=lambda item: -item[1])[:2]
            sums.held.setdefault(last, Spread()).add(longest_ns - next_ns, weight)

    def add_wait(self, wait: WaitRecord, process: str, task: str, partition: str) -> None:
        """Adds a request for samples, with its names resolved."""
        if (process, task) not in self.waits and len(self.waits) >= MAX_FUNCTIONS:
            process, task = MANY, MANY
        self.waits.setdefault((process, task), Waits()).add(wait, partition)
        self._seen(wait.start_ns, wait.total_ns)

    def _add(
        self, sums: OperationSums, kind: Kind, process: str, times: Sequence[float], weight: float
    ) -> None:
        sums.total.extend(times, weight)
        self.operations_by.setdefault((process, kind), Spread()).extend(times, weight)

    @staticmethod
    def _sizes(
        sums: OperationSums, times: Sequence[float], sizes: Sequence[float | None], weight: float
    ) -> None:
        sums.size.extend([size for size in sizes if size is not None], weight)
        speeds = [size * NS / took for took, size in zip(times, sizes, strict=True) if size and took > 0]
        sums.speed.extend(speeds, weight)
        sums.slow += weight * sum([speed < _SLOW for speed in speeds])

    def add_text(self, process: str, told: Operations) -> None:
        """Adds operations read from lines of text."""
        kind = Kind(told.kind)
        sums, times = self.operations[kind], [took * NS for took in told.seconds]
        self._add(sums, kind, process, times, told.weight)
        if told.error:
            sums.errors[told.error] += len(times)
            return
        self._sizes(sums, times, told.sizes, told.weight)
        shaped = [
            (rows, fields, size, took)
            for rows, fields, size, took in zip(told.rows, told.fields, told.sizes, times, strict=True)
            if rows is not None and fields is not None
        ]
        sums.rows.extend([rows for rows, *_ in shaped], told.weight)
        sums.fields.extend([fields for _, fields, *_ in shaped], told.weight)
        sums.shapes.extend(
            (round(rows), round(fields), round(size), round(took))
            for rows, fields, size, took in shaped
            if size is not None
        )

    def _seen(self, start_ns: int, took_ns: int) -> None:
        if self.first_ns is None or start_ns < self.first_ns:
            self.first_ns = start_ns
        self.last_ns = max(self.last_ns, start_ns + took_ns)
