"""Traced processes for tests, without a queue: run as a module, one that puts records of its own.

python -m tests.traced DIRECTORY ORDERS    with ORDERS such as `put 10; say; wait; kill`
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.peers.records import NameRecord, ProcessRecord
from flagscale_perf.spine.records import Record
from flagscale_perf.trace.options import TraceOptions
from flagscale_perf.trace.records import ONE, Begun, CallRecord, Kind, OperationRecord
from flagscale_perf.trace.task import job_of
from flagscale_perf.trace.tracer import Tracer
from flagscale_perf.writer.membership import Membership
from tests.members import Ordered

FUNCTION, PARTITION, ERROR = 1, 2, 3
NAMES = {FUNCTION: "rollout", PARTITION: "train_1", ERROR: "ValueError"}


def operation(number: int, **changes: object) -> OperationRecord:
    """A get of 15.2 MB in 60 ms."""
    record = OperationRecord(
        process=0,
        number=number,
        call=0,
        operation=int(Kind.GET),
        start_ns=monotonic_ns(),
        total_ns=60_000_000,
        select_ns=None,
        serialize_ns=None,
        unit_ns=40_000_000,
        slowest_unit=None,
        slowest_unit_ns=None,
        notify_ns=None,
        tags_ns=None,
        decode_ns=10_000_000,
        pack_ns=5_000_000,
        size_bytes=15_938_355,
        rows=64,
        fields=4,
        first_row=0,
        last_row=63,
        partition=PARTITION,
        error=0,
        weight_milli=ONE,
        step=None,
        trace_id=f"id{number}",
        field_set=None,
    )
    return record._replace(**changes)


def call(number: int, **changes: object) -> CallRecord:
    """The requirement's example: 0.914024 s."""
    record = CallRecord(
        process=0,
        number=number,
        parent=0,
        start_ns=monotonic_ns(),
        total_ns=914_024_000,
        get_ns=52_000_000,
        compute_ns=800_000_000,
        put_ns=62_024_000,
        rows=64,
        operations=2,
        operations_get_ns=50_000_000,
        operations_put_ns=60_000_000,
        get_bytes=1 << 20,
        put_bytes=1 << 16,
        function=FUNCTION,
        error=0,
        weight_milli=ONE,
        step=None,
        trace_id="a1b2c3d4",
    )
    return record._replace(**changes)


class Traced(Ordered):
    """Runs the orders of a traced process."""

    def __init__(self, directory: Path) -> None:
        self.options = TraceOptions(True, True, directory, to_stdout="TQ_TRACE_STDOUT" in os.environ)
        self.membership = Membership.join(job_of(self.options), "a program")
        self._begin()

    def _begin(self) -> None:
        self._next = 1
        for number, text in NAMES.items():
            self.membership.put(NameRecord(0, number, text))

    def put(self, count: str) -> None:
        """So many operations."""
        for _ in range(int(count)):
            self.membership.put(operation(self._next))
            self._next += 1

    def call(self, count: str) -> None:
        """So many calls."""
        for _ in range(int(count)):
            self.membership.put(call(self._next))
            self._next += 1

    def begin(self) -> None:
        """A call of rollout whose own work began, and in it a get, neither of which ends."""
        tracer = Tracer(self.options, self.membership.put)
        batch = SimpleNamespace(
            global_indexes=[0],
            partition_ids=["train_1"],
            extra_info={"trace_id": "a1"},
            custom_meta=[{}],
            size=1,
        )
        call = tracer.begin_call("rollout", batch)
        assert call is not None
        tracer.begin_stage(Begun.COMPUTE, call, monotonic_ns())
        tracer.begin_operation(int(Kind.GET), batch)

    def threads(self, threads: str, count: str) -> None:
        """So many threads, each of which puts so many operations; numbers are taken as the tracer does."""
        numbers = itertools.count(1)

        def put() -> None:
            for _ in range(int(count)):
                self.membership.put(operation(next(numbers)))

        started = [threading.Thread(target=put) for _ in range(int(threads))]
        for each in started:
            each.start()
        for each in started:
            each.join()

    def fork(self, count: str) -> None:
        """A child that puts so many and leaves as a worker of a DataLoader does; waits for it."""
        if pid := os.fork():
            os.waitpid(pid, 0)
            return
        self._begin()
        self.put(count)
        os._exit(0)


def numbers(records: list[Record]) -> dict[int, list[int]]:
    """Pid to the numbers of its calls and operations, which it counts from 1 on."""
    pids = {record.number: record.pid for record in records if isinstance(record, ProcessRecord)}
    found: dict[int, list[int]] = {pid: [] for pid in pids.values()}
    for record in records:
        if isinstance(record, CallRecord | OperationRecord):
            found[pids[record.process]].append(record.number)
    return {pid: sorted(held) for pid, held in found.items()}


def counts(records: list[Record]) -> Counter[int]:
    """Pid to how many calls and operations there are of it; 0 for one that no record has named yet."""
    return Counter({pid: len(held) for pid, held in numbers(records).items()})


def main() -> None:
    """As a process."""
    directory, orders = sys.argv[1:]
    Traced(Path(directory)).run(orders)


if __name__ == "__main__":
    main()
