"""Estimates what the bytes of a session's calls cost, from the calls themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from flagscale_perf.analysis.fit import non_negative
from flagscale_perf.rpc.dtypes import DType
from flagscale_perf.rpc.records import CallRecord, Status
from flagscale_perf.spine.averages import median
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from flagscale_perf.rpc.analysis.report import CallsReport

SMALL_BYTES = 64 << 10  # smaller calls all cost the same: waking up the other process
UNEXPLAINED = 0.25  # of what the calls took; beyond it costs predict nothing
QUARTILES = (0.25, 0.5, 0.75)
SHARED_COPIES = (1, 2)  # of a byte: calls through shared memory take 0.9 to 1.6 times one copy
_WIDE = (0, DType.FLOAT32, DType.FLOAT64)  # 0: the log does not say
MIN_SIZES = 3
Size: TypeAlias = tuple[float, float]  # bytes sent and received


class CallCost(NamedTuple):
    """Nanoseconds of a call without bytes, and of each further byte."""

    fixed_ns: float
    sent_ns: float
    received_ns: float

    def of(self, sent: float, received: float) -> float:
        """The cost of a call with this many bytes."""
        return self.fixed_ns + self.of_bytes(sent, received)

    def of_bytes(self, sent: float, received: float) -> float:
        """The cost of this many bytes."""
        return self.sent_ns * sent + self.received_ns * received


class Way(NamedTuple):
    """A change of every call: how many are left of one, how much of its bytes, and how these go.

    Attributes:
        cost: of a call and of its bytes, as they are now.
        copy_ns: of a byte of a large call, where it is copied through shared memory instead.
    """

    cost: CallCost
    calls: float = 1.0
    size: float = 1.0
    copy_ns: float | None = None

    def saved_ns(self, call: CallRecord) -> float:
        """What a call saves by it."""
        of_bytes = self.cost.of_bytes(call.sent_bytes, call.received_bytes)
        left = of_bytes * self.size
        if self.copy_ns is not None and call.moved_bytes > SMALL_BYTES:
            left = min(left, self.copy_ns * call.moved_bytes * self.size)
        return self.cost.fixed_ns * (1 - self.calls) + of_bytes - left


class Interval(NamedTuple):
    """Nanoseconds, at least and at most."""

    least: float
    most: float


class Costs:
    """The overhead of a call by its bytes: its time without the server's work and the caller's other work.

    Attributes:
        costs: of a call and of each byte, fitted to the quartiles of each size where there are several sizes;
            an interval is made of them. Empty where they are unknown or do not explain what calls took.
        calls: those of the report's sample that did not fail.
        may_be_wide: some arrays are in float32 or wider, or of unknown type.
        unknown: what could not be judged, and why.
    """

    def __init__(self, report: CallsReport) -> None:
        facts = report.facts
        self._report = report
        self._splits = not facts.receive_has_wait  # the wait is apart from the server's time
        self.unknown: list[str] = []
        self.calls = [call for call in report.sample if call.status == Status.OK]
        self._scale = report.overall.calls / len(self.calls) if self.calls else 0.0
        self.may_be_wide = any(call.dtype in _WIDE for call in self.calls)
        self.costs = self._explaining(float(facts.latency_ns or 0) if self._splits else 0.0)
        if not self._splits:
            self.unknown.append(
                "what is in Recv: the wait, the server and the transport are one figure in this log; gains"
                " are of Serialize, Send and Deserialize alone"
            )

    def _explaining(self, latency_ns: float) -> list[CallCost]:
        """The costs by the lower quartile, the median and the upper one, if the median explains the calls."""
        by_size: dict[Size, list[float]] = {}
        for call in self.calls:
            by_size.setdefault((call.sent_bytes, call.received_bytes), []).append(self._overhead_ns(call))
        if not by_size:
            return []
        ordered = {size: sorted(found) for size, found in by_size.items()}
        costs = [self._cost(ordered, share, latency_ns) for share in QUARTILES]
        middle = costs[len(costs) // 2]
        spent_ns = sum(map(sum, by_size.values()))
        if not spent_ns:
            return []
        told_ns = sum(middle.of(*size) * len(found) for size, found in by_size.items())
        if abs(told_ns / spent_ns - 1) > UNEXPLAINED:
            self.unknown.append(
                "what changes would gain: what calls and bytes cost explains "
                f"{_ms(told_ns * self._scale)} of the {_ms(spent_ns * self._scale)} that carrying them took"
            )
            return []
        # What the median does not explain may be the bytes' or the calls', too.
        return [*costs, CallCost(*(each * spent_ns / told_ns for each in middle))]

    def _cost(self, ordered: Mapping[Size, list[float]], share: float, latency_ns: float) -> CallCost:
        """The cost by this quantile of each size's calls; with few sizes, beside what an empty call took."""
        taken = {
            size: [found[round(share * (len(found) - 1))]] * len(found) for size, found in ordered.items()
        }
        fitted = fit(taken) if self._splits and any(sum(size) > SMALL_BYTES for size in taken) else None
        if fitted is not None:
            return fitted
        large = {size: found for size, found in taken.items() if sum(size) > SMALL_BYTES}
        if not large:
            all_of_them = sorted(chain.from_iterable(ordered.values()))
            fixed_ns = latency_ns or all_of_them[round(share * (len(all_of_them) - 1))]
            return CallCost(fixed_ns, 0.0, 0.0)
        moved = sum(sum(size) * len(found) for size, found in large.items())
        beyond = sum(max(0.0, found[0] - latency_ns) * len(found) for found in large.values())
        return CallCost(latency_ns, beyond / moved, beyond / moved)

    def _overhead_ns(self, call: CallRecord) -> float:
        copies = call.serialize_ns + call.send_ns + call.deserialize_ns
        return copies + (call.wait_ns or 0) + call.receive_ns if self._splits else copies

    def fixed(self) -> Interval | None:
        """The cost of a call without a byte; None where it is not known."""
        return _interval([cost.fixed_ns for cost in self.costs]) if self._splits else None

    @property
    def copies_ns(self) -> list[float]:
        """What a byte may cost in shared memory; empty where it is not known how fast this machine copies."""
        known = self._report.facts.copy_bytes_per_s
        return [copies * NS_PER_S / known for copies in SHARED_COPIES] if known else []

    def saved(self, calls: float, sent: float, received: float) -> Interval | None:
        """Time saved by so many calls and bytes less; None where costs are not known."""
        return _interval([cost.fixed_ns * calls + cost.of_bytes(sent, received) for cost in self.costs])

    def saved_by_halving(self) -> Interval | None:
        """Time saved by halving the bytes of every wide array; None as in `saved`."""
        ways = [Way(cost, size=0.5) for cost in self.costs]
        return self._of_all(ways, [call for call in self.calls if call.dtype in _WIDE])

    def saved_by_sharing(self) -> Interval | None:
        """Time saved if every byte of a large call were copied once or twice and nothing more; None if
        that is so already, or unknown.
        """
        if self._report.is_shared or not self.costs or not self._splits:
            return None
        if not self.copies_ns:
            self.unknown.append("what shared memory would gain: how fast this machine copies is not known")
        ways = [Way(cost, copy_ns=copy_ns) for cost in self.costs for copy_ns in self.copies_ns]
        return self._of_all(ways, self.calls)

    def _of_all(self, ways: Sequence[Way], calls: Sequence[CallRecord]) -> Interval | None:
        return _interval([sum(map(way.saved_ns, calls)) * self._scale for way in ways])


def _interval(values: Sequence[float]) -> Interval | None:
    return Interval(min(values), max(values)) if values else None


def _ms(time_ns: float) -> str:
    return f"{time_ns / NS_PER_MS:,.3g} ms"


def fit(costs: Mapping[Size, Sequence[float]]) -> CallCost | None:
    """The non-negative costs that come closest to the median of each size, in relative terms; None for calls
    of too few sizes.
    """
    medians = {size: (median(found), len(found)) for size, found in costs.items()}
    medians = {size: each for size, each in medians.items() if each[0] > 0}
    if len(medians) < MIN_SIZES:
        return None
    rows = [(1.0, *size) for size in medians]
    weights = [count / measured**2 for measured, count in medians.values()]
    return CallCost(*non_negative(rows, [measured for measured, _ in medians.values()], weights))
