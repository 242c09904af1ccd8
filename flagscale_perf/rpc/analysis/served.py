"""Sums of what the server recorded of the calls, by method."""

from __future__ import annotations

from flagscale_perf.rpc.records import ServedRecord, Status
from flagscale_perf.rpc.totals import MAX_METHODS, OTHER_METHODS

PARTS = ("queue", "read", "compute", "write", "send")


class ServedTotals:
    """Sums over one method at the server.

    Attributes:
        calls, failed: how many.
        total_ns: of all.
        parts_ns: the same by `PARTS`, and what is left.
    """

    def __init__(self) -> None:
        self.calls = self.failed = self.total_ns = 0
        self.parts_ns = [0] * (len(PARTS) + 1)

    def add(self, record: ServedRecord) -> None:
        """Adds a call."""
        self.calls += 1
        self.failed += record.status != Status.OK
        self.total_ns += record.total_ns
        known = (record.queue_ns, record.read_ns, record.compute_ns, record.write_ns, record.send_ns)
        for place, took_ns in enumerate((*known, record.total_ns - sum(known))):
            self.parts_ns[place] += took_ns


class Served:
    """Sums over all methods at the server.

    Attributes:
        methods: by their names, `MAX_METHODS` at most.
    """

    def __init__(self) -> None:
        self.methods: dict[str, ServedTotals] = {}

    def add(self, record: ServedRecord) -> None:
        """Adds a call."""
        name = record.method
        if name not in self.methods and len(self.methods) >= MAX_METHODS:
            name = OTHER_METHODS
        self.methods.setdefault(name, ServedTotals()).add(record)
