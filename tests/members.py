"""Processes of one job for tests: run as modules, they put records of their own, as they are ordered to.

python -m tests.traced DIRECTORY ORDERS    with ORDERS such as `put 10; say; wait; kill`
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from flagscale_perf.analysis.job import open_session
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.peers.records import ProcessRecord
from flagscale_perf.spine.records import Record, RunEnd
from flagscale_perf.store.run_file import RunFile

REPO = Path(__file__).parents[1]
LIMIT_S = 60.0


class Ordered:
    """Orders that every such process takes."""

    def run(self, orders: str) -> None:
        """One after another."""
        for order in orders.split(";"):
            name, *words = order.split()
            getattr(self, name)(*words)

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


@contextmanager
def process(
    module: str, directory: Path, orders: str, within: Sequence[str] = (), **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """One that runs `module`, started by the command `within`; killed at the end if it lives."""
    command = [*within, sys.executable, "-m", module, str(directory), orders]
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


def writers_of(directory: Path) -> set[int]:
    """Pids of the processes that have the run file open to write it."""
    files, found = set(map(str, directory.glob("perf_records_*"))), set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b".recording" in (process / "cmdline").read_bytes():
                links = {os.readlink(link) for link in (process / "fd").iterdir()}
                found |= {int(process.name)} if files & links else set()
    return found


def writer_of(directory: Path, but: int = 0) -> int:
    """Pid of the process that has the run file open, once there is one and it is not `but`."""
    found: set[int] = set()
    wait_for(
        lambda: bool(found.update(writers_of(directory) - {but}) or found)
    )  # it may close the file again
    return found.pop()


def records_in(directory: Path) -> list[Record]:
    """Of the one run file, as it is."""
    return list(RunFile(open_session(directory).path))


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


def ends(records: list[Record]) -> dict[int, tuple[str | None, int, int | None]]:
    """Pid to how the process has ended, what it has dropped and lost."""
    return {
        record.pid: (record.end, record.dropped, record.lost)
        for record in records
        if isinstance(record, ProcessRecord) and record.end is not None
    }
