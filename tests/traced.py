"""Traced processes for tests, without a queue: run as a module, one that puts records of its own.

python -m tests.traced DIRECTORY ORDERS    with ORDERS such as `put 10; say; wait; kill`
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flagscale_perf.analysis.run_file import RunFile, sessions_in
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.peers.records import NameRecord, ProcessRecord
from flagscale_perf.spine.processes import own_pids
from flagscale_perf.spine.records import Record, RunEnd
from flagscale_perf.spine.session import file_names
from flagscale_perf.trace.options import TraceOptions
from flagscale_perf.trace.records import ONE, CallRecord, Kind, OperationRecord
from flagscale_perf.trace.task import job_of
from flagscale_perf.writer.membership import Membership

REPO = Path(__file__).parents[1]
LIMIT_S = 60.0
FUNCTION, PARTITION, ERROR = 1, 2, 3
NAMES = {FUNCTION: "rollout", PARTITION: "train_1", ERROR: "ValueError"}


def operation(number: int, **changes: object) -> OperationRecord:
    """A get of 15.2 MB in 60 ms."""
    record = OperationRecord(
        process=0, number=number, call=0, operation=int(Kind.GET), start_ns=monotonic_ns(),
        total_ns=60_000_000,
        select_ns=None, serialize_ns=None, unit_ns=40_000_000, slowest_unit=None, slowest_unit_ns=None,
        notify_ns=None, tags_ns=None, decode_ns=10_000_000, pack_ns=5_000_000, size_bytes=15_938_355, rows=64,
        fields=4, first_row=0, last_row=63, partition=PARTITION, error=0, weight_milli=ONE, step=None,
        trace_id=f"id{number}",
    )  # fmt: skip
    return record._replace(**changes)


def call(number: int, **changes: object) -> CallRecord:
    """The requirement's example: 0.914024 s."""
    record = CallRecord(
        process=0, number=number, parent=0, start_ns=monotonic_ns(), total_ns=914_024_000, get_ns=52_000_000,
        compute_ns=800_000_000, put_ns=62_024_000, rows=64, operations=2, operations_get_ns=50_000_000,
        operations_put_ns=60_000_000, get_bytes=1 << 20, put_bytes=1 << 16, function=FUNCTION, error=0,
        weight_milli=ONE, step=None, trace_id="a1b2c3d4",
    )  # fmt: skip
    return record._replace(**changes)


class Traced:
    """Runs the orders of a traced process."""

    def __init__(self, directory: Path) -> None:
        options = TraceOptions(True, True, directory, to_stdout="TQ_TRACE_STDOUT" in os.environ)
        self.membership = Membership.join(job_of(options), "a program")
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

    def pause(self, seconds: str) -> None:
        """Sleeps."""
        time.sleep(float(seconds))

    def say(self) -> None:
        """That it is so far."""
        print("so far", os.getpid(), flush=True)

    def wait(self) -> None:
        """For a line on stdin."""
        sys.stdin.readline()

    def kill(self) -> None:
        """Itself."""
        os.kill(os.getpid(), signal.SIGKILL)

    def fork(self, count: str) -> None:
        """A child that puts so many and leaves as a worker of a DataLoader does; waits for it."""
        if pid := os.fork():
            os.waitpid(pid, 0)
            return
        self._begin()
        self.put(count)
        os._exit(0)


@contextmanager
def process(directory: Path, orders: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A traced process; killed at the end if it lives."""
    command = [sys.executable, "-m", "tests.traced", str(directory), orders]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=REPO, text=True, env=os.environ | variables, **pipes) as started:
        try:
            yield started
        finally:
            started.kill()


def so_far(started: subprocess.Popen[str]) -> int:
    """Waits until the process says so. Returns its pid."""
    assert started.stdout is not None
    return int(started.stdout.readline().split()[-1])


def say(started: subprocess.Popen[str]) -> None:
    """Lets a process that waits go on."""
    assert started.stdin is not None
    started.stdin.write("\n")
    started.stdin.flush()


def wait_for(condition: Callable[[], bool]) -> None:
    """Until it holds."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def writer_of(directory: Path, but: int = 0) -> int:
    """Pid of the process that has the run file open, once there is one and it is not `but`."""
    found: set[int] = set()

    def is_there() -> bool:
        files = set(map(str, directory.glob("perf_records_*")))
        for pid in own_pids():
            with suppress(OSError):
                if b"trace.recording" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    links = {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()}
                    found.update({pid} - {but} if files & links else ())
        return bool(found)

    wait_for(is_there)
    return found.pop()


def records_in(directory: Path) -> list[Record]:
    """Of the one run file, as it is."""
    (session,) = sessions_in(directory)
    return list(RunFile(directory / file_names(session)["records"]))


def finished(directory: Path) -> list[Record]:
    """Of the one run file, once its writer has ended it."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        with suppress(PerfError):  # not there yet
            records = records_in(directory)
            if any(isinstance(record, RunEnd) for record in records):
                return records
        time.sleep(0.05)
    raise AssertionError(f"no end in {directory}")


def counts(records: list[Record]) -> dict[int, int]:
    """Pid to how many calls and operations there are of it."""
    pids = {record.number: record.pid for record in records if isinstance(record, ProcessRecord)}
    found = dict.fromkeys(pids.values(), 0)
    for record in records:
        if isinstance(record, CallRecord | OperationRecord):
            found[pids[record.process]] += 1
    return found


def ends(records: list[Record]) -> dict[int, tuple[str | None, int, int | None]]:
    """Pid to how the process has ended, what it has dropped and lost."""
    return {
        record.pid: (record.end, record.dropped, record.lost)
        for record in records
        if isinstance(record, ProcessRecord) and record.end is not None
    }


def main() -> None:
    """As a process."""
    directory, orders = sys.argv[1:]
    traced = Traced(Path(directory))
    for order in orders.split(";"):
        name, *words = order.split()
        getattr(traced, name)(*words)


if __name__ == "__main__":
    main()
