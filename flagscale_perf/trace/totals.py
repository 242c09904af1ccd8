"""Operations and calls summed up in bounded memory, each counted by its weight."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.peers.records import NameRecord
from flagscale_perf.spine.records import Record
from flagscale_perf.trace.figures import other_ns, stages_ns
from flagscale_perf.trace.lines import escaped
from flagscale_perf.trace.records import ONE, CallRecord, OperationRecord

MAX_FUNCTIONS = 64  # kept apart; the others are summed under one name
OTHER_FUNCTIONS = "(other functions)"
PER_DOUBLING = 8  # bins of a histogram: quantiles are accurate to 9 %
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Histogram:
    """Durations in bins whose width is a fixed share of their value."""

    def __init__(self) -> None:
        self._bins: dict[int, float] = {}
        self._count = 0.0

    def add(self, took_ns: int, count: float) -> None:
        """Adds this many of a duration."""
        place = round(PER_DOUBLING * math.log2(max(took_ns, 1)))
        self._bins[place] = self._bins.get(place, 0.0) + count
        self._count += count

    def quantile(self, share: float) -> float | None:
        """The quantile in seconds; None if the histogram is empty."""
        seen = 0.0
        for place in sorted(self._bins):
            seen += self._bins[place]
            if seen >= share * self._count:
                return 2 ** (place / PER_DOUBLING) / NS_PER_S
        return None

    def below(self, bounds_s: Sequence[float]) -> list[float]:
        """For each bound, how many durations are at most as long; last, their total number. Bins are counted
        whole.
        """
        counts = [0.0] * len(bounds_s)
        for place, count in self._bins.items():
            middle_s = 2 ** (place / PER_DOUBLING) / NS_PER_S
            for number, bound_s in enumerate(bounds_s):
                counts[number] += count if middle_s <= bound_s else 0
        return [*counts, self._count]


class _Totals:
    """Sums of records with a duration.

    Attributes:
        recorded: records.
        count: what they stand for, like the other sums.
        failed: those with an error.
        total_ns: of all.
        histogram: of these.
    """

    def __init__(self) -> None:
        self.recorded = 0
        self.count = self.failed = self.total_ns = 0.0
        self.histogram = Histogram()

    def _add(self, record: OperationRecord | CallRecord) -> float:
        """Adds a record and returns its weight."""
        weight = record.weight_milli / ONE
        self.recorded += 1
        self.count += weight
        self.failed += weight if record.error else 0
        self.total_ns += weight * record.total_ns
        self.histogram.add(record.total_ns, weight)
        return weight


class OperationTotals(_Totals):
    """Operations of one kind.

    Attributes:
        stages_ns: by stage, those that were measured, and `other`.
        size_bytes: of those whose size is known.
        rows: of all.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stages_ns: dict[str, float] = {}
        self.size_bytes = self.rows = 0.0

    def add(self, operation: OperationRecord) -> None:
        """Adds an operation."""
        weight = self._add(operation)
        for stage, took_ns in (stages_ns(operation) | {"other": other_ns(operation)}).items():
            self.stages_ns[stage] = self.stages_ns.get(stage, 0.0) + weight * took_ns
        self.size_bytes += weight * (operation.size_bytes or 0)
        self.rows += weight * operation.rows


class CallTotals(_Totals):
    """Calls of one function.

    Attributes:
        get_ns, compute_ns, put_ns: of all; 0 for a stage that never began.
    """

    def __init__(self) -> None:
        super().__init__()
        self.get_ns = self.compute_ns = self.put_ns = 0.0

    def add(self, call: CallRecord) -> None:
        """Adds a call."""
        weight = self._add(call)
        self.get_ns += weight * call.get_ns
        self.compute_ns += weight * (call.compute_ns or 0)
        self.put_ns += weight * (call.put_ns or 0)

    def stages(self) -> dict[str, float]:
        """Time by stage name."""
        return {"get": self.get_ns, "compute": self.compute_ns, "put": self.put_ns}


class TraceTotals:
    """Sums of a session.

    Attributes:
        operations: by kind.
        functions: by name, `MAX_FUNCTIONS` at most.
    """

    def __init__(self) -> None:
        self.operations: dict[int, OperationTotals] = {}
        self.functions: dict[str, CallTotals] = {}
        self._names: dict[tuple[int, int], str] = {}

    def add(self, record: Record) -> None:
        """Adds the next record of the session."""
        if isinstance(record, NameRecord):
            self._names[record.process, record.number] = record.text
        elif isinstance(record, OperationRecord):
            self.operations.setdefault(record.operation, OperationTotals()).add(record)
        elif isinstance(record, CallRecord):
            self._of(record).add(record)

    def _of(self, call: CallRecord) -> CallTotals:
        name = escaped(self._names.get((call.process, call.function), "")) or "N/A"
        if name not in self.functions and len(self.functions) >= MAX_FUNCTIONS:
            name = OTHER_FUNCTIONS
        return self.functions.setdefault(name, CallTotals())
