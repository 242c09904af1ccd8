"""Sums over calls, operations and waits for a report, from records or from lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.trace.analysis.lines import Operations
from flagscale_perf.trace.analysis.model import Shapes
from flagscale_perf.trace.figures import MIB
from flagscale_perf.trace.records import ONE, CallRecord, Kind, OperationRecord, WaitRecord
from flagscale_perf.trace.spread import Distinct, Spread
from flagscale_perf.trace.sums import FunctionSums, OperationSums

NS = 1_000_000_000
MAX_FUNCTIONS = 10_000  # over all processes; more than these are ids rather than functions
MANY = "(more)"
LONG_NS = 100 * NS_PER_MS  # ours: an answer takes some milliseconds; one that takes longer was waited for
_SLOW = 100 * MIB  # bytes a second
_NO_WAITS: Mapping[str, int] = {}


@dataclass
class JudgedOperations(OperationSums):
    """Operations of one kind, with what a report says of them beyond a summary.

    Attributes:
        speed: bytes a second, of operations whose bytes are known.
        slow: how many of these (by weight) lie below the limit of the requirement.
        units: time waited for the slowest storage unit of each operation, by unit.
        waits: time waited for each storage unit, of the operations that asked several.
        held: how much longer the slowest unit of these was waited for than the next, by unit.
        shapes: for the cost model.
    """

    speed: Spread = field(default_factory=Spread)
    slow: float = 0.0
    units: dict[str, Spread] = field(default_factory=dict)
    waits: dict[str, Spread] = field(default_factory=dict)
    held: dict[str, Spread] = field(default_factory=dict)
    shapes: Shapes = field(default_factory=Shapes)

    def add_judged(self, one: OperationRecord, unit: str, waits: Mapping[str, int]) -> tuple[str, float]:
        """Adds what is beyond `add` of an operation that succeeded. Returns the unit that held it up, and for
        how long.
        """
        weight = one.weight_milli / ONE
        self.add_speeds((one.total_ns,), (one.size_bytes,), weight)
        if one.size_bytes is not None:
            self.shapes.add(one.rows, one.fields, one.size_bytes, one.total_ns)
        if unit and one.slowest_unit_ns is not None:
            self.units.setdefault(unit, Spread()).add(one.slowest_unit_ns, weight)
        for name, wait_ns in waits.items():
            self.waits.setdefault(name, Spread()).add(wait_ns, weight)
        if len(waits) < 2:
            return "", 0.0
        (last, longest_ns), (_, next_ns) = sorted(waits.items(), key=lambda item: -item[1])[:2]
        self.held.setdefault(last, Spread()).add(longest_ns - next_ns, weight)
        return last, (longest_ns - next_ns) * weight

    def add_speeds(self, times: Sequence[float], sizes: Sequence[float | None], weight: float) -> None:
        """Adds the throughput of operations by the time and the bytes of each."""
        speeds = [size * NS / took for took, size in zip(times, sizes, strict=True) if size and took > 0]
        self.speed.extend(speeds, weight)
        self.slow += weight * sum([speed < _SLOW for speed in speeds])


@dataclass
class Waits:
    """One consumer's requests for samples in one process. It has waited from the first request that found too
    few samples until the answer that had them, or through one request that took long. Its first samples are
    left out, which must be made first, and so is what nothing has come of.

    Attributes:
        requests: for samples.
        unanswered: those that found too few, or failed.
        answered: those that got samples.
        waited: of these, how many were waited for.
        waited_ns: for all of them.
        first_ns: waited for the first samples.
    """

    requests: int = 0
    unanswered: int = 0
    answered: int = 0
    waited: int = 0
    waited_ns: int = 0
    first_ns: int = 0
    _since: dict[str, int] = field(default_factory=dict)  # by partition: the first request that found too few

    def add(self, wait: WaitRecord, partition: str) -> None:
        """Adds the next request."""
        self.requests += 1
        if wait.error or not wait.rows:
            self.unanswered += 1
            self._since.setdefault(partition, wait.start_ns)
            return
        since_ns = self._since.pop(partition, None)
        took_ns = wait.start_ns + wait.total_ns - (wait.start_ns if since_ns is None else since_ns)
        has_waited = since_ns is not None or took_ns >= LONG_NS
        self.answered += 1
        if has_waited and self.answered == 1:
            self.first_ns = took_ns
        elif has_waited:
            self.waited += 1
            self.waited_ns += took_ns

    def as_dict(self) -> dict[str, Any]:
        """Its content as JSON-ready data."""
        return {name: value for name, value in vars(self).items() if name != "_since"}


class Sums:
    """All sums, in memory that depends on the number of functions and processes.

    Attributes:
        by_process: of calls, by (process, function).
        operations: by kind.
        operations_by: by (process, kind), their durations.
        waits: of consumers for samples, by (process, task).
        held: for how long each unit held up the operations of a kind in a function, by function.
        held_by: the same by (process, unit, kind), of all operations.
        traces: different ids.
        without_id: calls that have none.
        first_ns, last_ns: of the records; None where times of day are not known.
        began_ns: when the first call began: until then the job's processes are starting. None without calls.
    """

    def __init__(self) -> None:
        self.by_process: dict[tuple[str, str], FunctionSums] = {}
        self.operations = {kind: JudgedOperations() for kind in Kind}
        self.operations_by: dict[tuple[str, Kind], Spread] = {}
        self.waits: dict[tuple[str, str], Waits] = {}
        self.held: dict[str, Counter[tuple[str, Kind]]] = {}
        self.held_by: Counter[tuple[str, str, Kind]] = Counter()
        self._held: dict[tuple[str, int], Counter[tuple[str, Kind]]] = {}  # in calls that have not ended
        self.traces = Distinct()
        self.without_id = 0
        self.first_ns: int | None = None
        self.last_ns = 0
        self.began_ns: int | None = None

    @property
    def functions(self) -> dict[str, FunctionSums]:
        """Calls by function over all processes, the longest first."""
        functions: dict[str, FunctionSums] = {}
        for (_, name), one in self.by_process.items():
            functions.setdefault(name, FunctionSums()).merge(one)
        return dict(sorted(functions.items(), key=lambda item: -item[1].total.total))

    @property
    def calls(self) -> int:
        """Calls that ended, failed ones included."""
        return sum(one.calls for one in self.by_process.values())

    @property
    def count(self) -> int:
        """Puts and gets, failed ones included."""
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

    def trace(self, trace_id: str) -> None:
        """Counts a call's id."""
        if trace_id:
            digest = blake2b(trace_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            self.traces.add(int.from_bytes(digest, "big"))
        else:
            self.without_id += 1

    def add_call(self, call: CallRecord, process: str, function: str, error: str) -> None:
        """Adds a call record, with its names resolved."""
        self.of(process, function).add(call, error)
        self.trace(call.trace_id)
        self._seen(call.start_ns, call.total_ns)
        self.began_ns = call.start_ns if self.began_ns is None else min(call.start_ns, self.began_ns)
        if held := self._held.pop((process, call.number), None):
            self.held.setdefault(function, Counter()).update(held)

    def add_operation(
        self, one: OperationRecord, process: str, unit: str, error: str, waits: Mapping[str, int] = _NO_WAITS
    ) -> None:
        """Adds an operation record, with its names resolved; `waits` by storage unit, if it asked several."""
        kind = Kind(one.operation)
        self.operations[kind].add(one, error)
        if not error:
            last, held_ns = self.operations[kind].add_judged(one, unit, waits)
            self.held_by[process, last, kind] += round(held_ns)
            if held_ns and one.call and len(self._held) < MAX_FUNCTIONS:
                self._held.setdefault((process, one.call), Counter())[last, kind] += round(held_ns)
        self._of_process(process, kind).add(one.total_ns, one.weight_milli / ONE)
        self._seen(one.start_ns, one.total_ns)

    def add_wait(self, wait: WaitRecord, process: str, task: str, partition: str) -> None:
        """Adds a request for samples, with its names resolved."""
        if (process, task) not in self.waits and len(self.waits) >= MAX_FUNCTIONS:
            process, task = MANY, MANY
        self.waits.setdefault((process, task), Waits()).add(wait, partition)
        self._seen(wait.start_ns, wait.total_ns)

    def _of_process(self, process: str, kind: Kind) -> Spread:
        return self.operations_by.setdefault((process, kind), Spread())

    def add_text(self, process: str, told: Operations) -> None:
        """Adds operations read from lines of text."""
        sums, times = self.operations[told.kind], [took * NS for took in told.seconds]
        sums.total.extend(times, told.weight)
        self._of_process(process, told.kind).extend(times, told.weight)
        if told.error:
            sums.errors[told.error] += len(times)
            return
        sums.size.extend([size for size in told.sizes if size is not None], told.weight)
        sums.add_speeds(times, told.sizes, told.weight)
        shaped = [
            (rows, fields, size, took)
            for rows, fields, size, took in zip(told.rows, told.fields, told.sizes, times, strict=True)
            if rows is not None and fields is not None
        ]
        sums.rows.extend([rows for rows, *_ in shaped], told.weight)
        sums.shapes.extend(
            (round(rows), round(fields), round(size), round(took))
            for rows, fields, size, took in shaped
            if size is not None
        )

    def _seen(self, start_ns: int, took_ns: int) -> None:
        if self.first_ns is None or start_ns < self.first_ns:
            self.first_ns = start_ns
        self.last_ns = max(self.last_ns, start_ns + took_ns)
