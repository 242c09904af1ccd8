"""What the bytes of a session's calls cost, by the calls themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flagscale_perf.analysis.compare.bootstrap import median
from flagscale_perf.rpc.arrays import DType
from flagscale_perf.rpc.records import CallRecord, Status

if TYPE_CHECKING:
    from flagscale_perf.rpc.analysis.report import CallsReport

SMALL_BYTES = 64 << 10  # below it a call costs the same whatever its size: waking up
_WIDE = (0, DType.FLOAT32, DType.FLOAT64)  # 0: the log does not say


class Costs:
    """Overhead of a call by its bytes: what it takes without the server's own time and the caller's other
    work.

    Attributes:
        fixed_ns: of a call without a byte: as the handshake measured it, else of the smallest calls; None
            where neither is known.
        may_be_wide: some arrays are in float32 or wider, or of unknown type.
        unknown: what could not be judged, and why.
    """

    def __init__(self, report: CallsReport) -> None:
        facts = report.facts
        self._report = report
        self._splits = not facts.receive_has_wait  # the wait is apart from the server's time
        self.unknown: list[str] = []
        sample = [call for call in report.sample if call.status == Status.OK]
        sized = [(call.sent_bytes + call.received_bytes, self._overhead_ns(call), call) for call in sample]
        small = [cost for size, cost, _ in sized if size <= SMALL_BYTES]
        self.fixed_ns: float | None = facts.latency_ns or (median(small) if small and self._splits else None)
        self.may_be_wide = any(call.dtype in _WIDE for call in sample)
        self._large = [one for one in sized if one[0] > SMALL_BYTES]
        self._scale = report.overall.calls / len(sized) if sized else 0.0
        if not self._splits:
            self.unknown.append(
                "what is in Recv: the wait, the server and the transport are one figure in this log; gains"
                " are of Serialize, Send and Deserialize alone"
            )

    def _overhead_ns(self, call: CallRecord) -> float:
        copies = call.serialize_ns + call.send_ns + call.deserialize_ns
        return copies + call.wait_ns + call.receive_ns if self._splits else copies

    def saved_by_halving(self) -> float | None:
        """Half of the bytes of every wide array not sent; None where there are no large calls."""
        wide = [cost for _, cost, call in self._large if call.dtype in _WIDE]
        return sum(map(self._of_bytes, wide)) / 2 * self._scale if self._large else None

    def saved_by_bytes(self, saved_bytes: float) -> float | None:
        """So many bytes less, at what a byte of the large calls costs on average; None like
        `saved_by_halving`.
        """
        moved = sum(size for size, *_ in self._large)
        return (
            saved_bytes * sum(self._of_bytes(cost) for _, cost, _ in self._large) / moved if moved else None
        )

    def saved_by_sharing(self) -> float | None:
        """Every byte copied once, and nothing else done with it; None where that is so, or not known."""
        totals = self._report.overall
        is_shared = self._report.facts.payload == "shared" or totals.shared_bytes > totals.socket_bytes
        if is_shared or not self._large:
            return None
        copy_ns = self._copy_ns_per_byte()
        if copy_ns is None:
            return None
        saved = sum(max(0.0, self._of_bytes(cost) - copy_ns * size) for size, cost, _ in self._large)
        return saved * self._scale

    def _of_bytes(self, cost_ns: float) -> float:
        """What of a call's overhead its bytes cost."""
        return max(0.0, cost_ns - (self.fixed_ns or 0.0)) if self._splits else cost_ns

    def _copy_ns_per_byte(self) -> float | None:
        """Of one copy on the machine of the calls."""
        known = self._report.facts.copy_bytes_per_s
        if known is None:
            self.unknown.append("what shared memory would gain: how fast this machine copies is not known")
            return None
        return 1e9 / known
