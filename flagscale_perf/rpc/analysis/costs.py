"""What the bytes of a session's calls cost, estimated from the calls themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flagscale_perf.analysis.compare.bootstrap import median
from flagscale_perf.rpc.analysis.fit import CallCost, fit
from flagscale_perf.rpc.arrays import DType
from flagscale_perf.rpc.records import CallRecord, Status

if TYPE_CHECKING:
    from flagscale_perf.rpc.analysis.report import CallsReport

SMALL_BYTES = 64 << 10  # smaller calls all cost the same: waking up the other process
_WIDE = (0, DType.FLOAT32, DType.FLOAT64)  # 0: the log does not say


class Costs:
    """The overhead of a call by its bytes: its time without the server's work and the caller's other work.

    Attributes:
        cost: of a call and of each byte, fitted to the calls where these have several sizes; None where it is
            not known.
        fixed_ns: of a call without a byte: as fitted, else as the handshake measured it, else of the smallest
            calls; None where none of these is known.
        may_be_wide: some arrays are in float32 or wider, or of unknown type.
        unknown: what could not be judged, and why.
    """

    def __init__(self, report: CallsReport) -> None:
        facts = report.facts
        self._report = report
        self._splits = not facts.receive_has_wait  # the wait is apart from the server's time
        self.unknown: list[str] = []
        self._calls = [call for call in report.sample if call.status == Status.OK]
        self._scale = report.overall.calls / len(self._calls) if self._calls else 0.0
        self.may_be_wide = any(call.dtype in _WIDE for call in self._calls)
        self.cost = self._cost(facts.latency_ns)
        self.fixed_ns = self._fixed_ns(facts.latency_ns)
        if not self._splits:
            self.unknown.append(
                "what is in Recv: the wait, the server and the transport are one figure in this log; gains"
                " are of Serialize, Send and Deserialize alone"
            )

    def _cost(self, latency_ns: int | None) -> CallCost | None:
        large = [call for call in self._calls if _moved(call) > SMALL_BYTES]
        if not large:
            return None
        by_size: dict[tuple[float, float], list[float]] = {}
        for call in self._calls:
            by_size.setdefault((call.sent_bytes, call.received_bytes), []).append(self._overhead_ns(call))
        fitted = fit(by_size) if self._splits else None
        if fitted is not None:
            return fitted
        fixed_ns = float(latency_ns or 0) if self._splits else 0.0
        of_bytes = sum(max(0.0, self._overhead_ns(call) - fixed_ns) for call in large)
        each_ns = of_bytes / sum(map(_moved, large))
        return CallCost(fixed_ns, each_ns, each_ns)

    def _fixed_ns(self, latency_ns: int | None) -> float | None:
        if self._splits and self.cost is not None and self.cost.fixed_ns > 0:
            return self.cost.fixed_ns
        small = [self._overhead_ns(call) for call in self._calls if _moved(call) <= SMALL_BYTES]
        return latency_ns or (median(small) if small and self._splits else None)

    def _overhead_ns(self, call: CallRecord) -> float:
        copies = call.serialize_ns + call.send_ns + call.deserialize_ns
        return copies + call.wait_ns + call.receive_ns if self._splits else copies

    def saved_by_halving(self) -> float | None:
        """Time saved by halving the bytes of every wide array; None if there are no large calls."""
        if self.cost is None:
            return None
        wide = (call for call in self._calls if call.dtype in _WIDE)
        return (
            sum(self.cost.of_bytes(call.sent_bytes, call.received_bytes) for call in wide) / 2 * self._scale
        )

    def saved_by_bytes(self, sent: float, received: float) -> float | None:
        """Time saved by sending this many bytes less; None as in `saved_by_halving`."""
        return None if self.cost is None else self.cost.of_bytes(sent, received)

    def saved_by_sharing(self) -> float | None:
        """Time saved if every byte were copied once and nothing more; None if that is so already, or
        unknown.
        """
        totals = self._report.overall
        is_shared = self._report.facts.payload == "shared" or totals.shared_bytes > totals.socket_bytes
        if is_shared or self.cost is None:
            return None
        copy_ns = self._copy_ns_per_byte()
        if copy_ns is None:
            return None
        fixed_ns = self.cost.fixed_ns
        left = (
            max(0.0, self._overhead_ns(call) - fixed_ns - copy_ns * _moved(call))
            for call in self._calls
            if _moved(call) > SMALL_BYTES
        )
        return sum(left) * self._scale

    def _copy_ns_per_byte(self) -> float | None:
        """Cost of one copy on the machine of the calls."""
        known = self._report.facts.copy_bytes_per_s
        if known is None:
            self.unknown.append("what shared memory would gain: how fast this machine copies is not known")
            return None
        return 1e9 / known


def _moved(call: CallRecord) -> int:
    return call.sent_bytes + call.received_bytes
