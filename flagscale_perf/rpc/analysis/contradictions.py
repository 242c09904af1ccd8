"""Compares what the caller and the server say of the same call."""

from __future__ import annotations

from typing import NamedTuple

from flagscale_perf.rpc.analysis.columns import Columns
from flagscale_perf.rpc.records import ServedRecord, Status
from flagscale_perf.spine.clock import NS_PER_MS

MOST_WAITING = 1 << 16  # records of one side whose counterpart has not been read yet


class _Told(NamedTuple):
    """What a caller's record says of the server."""

    start_ns: int
    total_ns: int
    queue_ns: int | None
    server_ns: int | None


_SERVER = _Told._fields.index("server_ns")


class Contradictions:
    """Every call of which both sides have a record, compared.

    Attributes:
        compared: how many calls.
        found: of them, those whose records contradict each other.
        unbelieved: calls whose server says that it worked longer than they took.
        first: the first contradiction, in words; "" without one.
    """

    def __init__(self) -> None:
        self.compared = self.found = self.unbelieved = 0
        self.first = ""
        self._calls: dict[int, _Told] = {}
        self._served: dict[int, ServedRecord] = {}

    def add_calls(self, columns: Columns) -> None:
        """The next records of the caller."""
        told = zip(*(columns[name] for name in _Told._fields), strict=True)
        for number, status, call in zip(columns["number"], columns["status"], told, strict=True):
            if status != Status.OK:
                continue
            self.unbelieved += call[_SERVER] is None
            served = self._served.pop(number, None)
            if served is None:
                _keep(self._calls, number, _Told(*call))
            else:
                self._compare(number, _Told(*call), served)

    def add_served(self, served: ServedRecord) -> None:
        """The next record of the server."""
        call = self._calls.pop(served.call, None)
        if call is None:
            _keep(self._served, served.call, served)
        else:
            self._compare(served.call, call, served)

    def as_dict(self) -> dict[str, object]:
        """Its content as JSON-ready data."""
        return {
            "compared": self.compared,
            "found": self.found,
            "unbelieved": self.unbelieved,
            "first": self.first or None,
        }

    def words(self) -> list[str]:
        """A sentence for each kind that there is."""
        said = []
        if self.found:
            said.append(
                f"{self.found} of {self.compared} calls: the server's record contradicts the caller's; "
                f"{self.first}"
            )
        if self.unbelieved:
            said.append(
                f"{self.unbelieved} calls: the server says that it worked longer than they took, which is "
                "not believed; wait has its time"
            )
        return said

    def _compare(self, number: int, call: _Told, served: ServedRecord) -> None:
        self.compared += 1
        why = _why(call, served)
        if why:
            self.found += 1
            self.first = self.first or f"call {number}, {served.method}: {why}"


def _keep(waiting: dict[int, _Told] | dict[int, ServedRecord], number: int, record: object) -> None:
    """Keeps a record until its counterpart comes; the oldest makes room."""
    if len(waiting) >= MOST_WAITING:
        del waiting[next(iter(waiting))]
    waiting[number] = record  # type: ignore[assignment]


def _why(call: _Told, served: ServedRecord) -> str:
    """What contradicts, in words; "" if nothing does. The server's mark in its reply lies between the end of
    its parts and the end of its record, whatever else ran on the machine.
    """
    parts_ns = served.read_ns + served.compute_ns + served.write_ns
    most_ns = served.total_ns - served.queue_ns - served.send_ns
    if call.server_ns is not None and not parts_ns <= call.server_ns <= most_ns:
        return f"the caller has {_ms(call.server_ns)} at the server, the server {_ms(parts_ns)}"
    if call.queue_ns is None:  # the clocks are not the same
        return ""
    if served.start_ns < call.start_ns:
        return f"the server had it {_ms(call.start_ns - served.start_ns)} before it was made"
    late_ns = served.start_ns + served.queue_ns + parts_ns - (call.start_ns + call.total_ns)
    return f"the server went on with it {_ms(late_ns)} after its end" if late_ns > 0 else ""


def _ms(time_ns: int) -> str:
    return f"{time_ns / NS_PER_MS:.3f} ms"
