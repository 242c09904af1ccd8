"""Faults of what is around a job: mounts, the kernel's memory limit, the network, and what already lies in
the directory.
"""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from flagscale_perf.spine.session import file_names, intervals_name, new_session_id
from tests.faults.injections import VICTIM, Act, Prepare, lets_go_on
from tests.faults.job import LOG_DIRECTORY, Job
from tests.faults.mounts import mounted
from tests.faults.shim import Shim
from tests.processes import flagscale as fs

DISK_BYTES, ROOM_BYTES = 1 << 20, 96 << 10
BALLAST = "ballast"
ROOM_AT = 250  # iteration
SECOND = 1_700_000_000  # at which sessions begin while the clock stands
CLIENTS_A_STEP = 10
WRITER_FILES = 128  # that the writer may open while clients come
LIMITS = {Path("/sys/fs/cgroup/memory"): "memory.limit_in_bytes", Path("/sys/fs/cgroup"): "memory.max"}


@contextmanager
def read_only_mount(directory: Path, port: int) -> Iterator[None]:
    """The log directory is one."""
    with mounted(directory / LOG_DIRECTORY, "ro"):
        yield


@contextmanager
def nearly_full_mount(directory: Path, port: int) -> Iterator[None]:
    """The log directory is one."""
    with mounted(directory / LOG_DIRECTORY, f"size={DISK_BYTES}"):
        (directory / LOG_DIRECTORY / BALLAST).write_bytes(bytes(DISK_BYTES - ROOM_BYTES))
        yield


@contextmanager
def full_mount(directory: Path, port: int) -> Iterator[None]:
    """Another directory, `full`, is one."""
    with mounted(directory / "full", f"size={DISK_BYTES}"):
        (directory / "full" / BALLAST).write_bytes(bytes(DISK_BYTES))
        yield


@lets_go_on(ROOM_AT)
def make_room(running: Job) -> None:
    """Once the disk is full and the training has gone on for a while."""
    fs.wait_until(lambda: shutil.disk_usage(running.logs).free == 0, "a full disk")
    running.read_until(ROOM_AT)
    (running.logs / BALLAST).unlink()


def limit_memory(mib: int, *who: Callable[[Job], psutil.Process]) -> Act:
    """These processes may take so much more together; the kernel kills one of them that takes more."""

    def act(running: Job) -> None:
        running.wait_for_step(1)
        processes = [find(running) for find in who]
        group, limit = memory_group()
        running.held.callback(remove_group, group)
        for process in processes:
            (group / "cgroup.procs").write_text(str(process.pid))
        limit.write_text(str(mib << 20))

    return act


def memory_group() -> tuple[Path, Path]:
    """A new group of processes, and the file of its limit; skips the test where there can be none."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        if controllers not in ("memory", ""):
            continue
        # In the second version a group with processes has no limited groups below it: beside it, then.
        root = Path("/sys/fs/cgroup", controllers)
        group = (
            root
            / (own.lstrip("/") if controllers else str(Path(own).parent).lstrip("/"))
            / f"faults_{os.getpid()}"
        )
        with suppress(OSError):
            group.mkdir()
            if (limit := group / LIMITS[root]).exists():
                return group, limit
            group.rmdir()
    pytest.skip("needs a cgroup with a memory controller that may be written")


def remove_group(group: Path) -> None:
    """Waits for the end of all processes in it."""

    def is_removed() -> bool:
        with suppress(OSError):  # its last process is still ending
            group.rmdir()
        return not group.exists()

    fs.wait_until(is_removed, "the end of all processes of a group")


@contextmanager
def own_namespace(directory: Path, port: int) -> Iterator[None]:
    """Skips the test where nobody may make one, see `tests.faults.namespace`."""
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"needs the right to make namespaces: {done.stderr.strip()}")
    yield


@contextmanager
def port_taken(directory: Path, port: int) -> Iterator[None]:
    """Somebody listens there."""
    with socket.create_server(("127.0.0.1", port)):
        yield


def clients(count: int, words: bytes) -> Act:
    """So many connect to the port, say this and never read; they stay until after the end. The writer may
    open few files.
    """

    def act(running: Job) -> None:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[1], 2 * count + 1024), limits[1]))
        running.held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        fs.wait_until(lambda: _listens(running.port), "the port")
        resource.prlimit(running.writer().pid, resource.RLIMIT_NOFILE, (WRITER_FILES, limits[1]))
        for number in range(count):
            if number % CLIENTS_A_STEP == 0:
                running.read_until(running.printed[-1][0] + 1)
            client = running.held.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", running.port))
            with suppress(OSError):  # turned away, or still waiting
                client.send(words)

    return act


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def lies_there(name: str, make: Callable[[Path], object]) -> Prepare:
    """Something of that name lies in the job's directory."""

    def prepare(directory: Path, shim: Shim) -> dict[str, str]:
        make(directory / name)
        return {}

    return prepare


def link_to_victim(path: Path) -> None:
    """A symbolic link to somebody's file."""
    (path.parent / VICTIM).write_text("precious")
    path.symlink_to(path.parent / VICTIM)


def link_to_directory(path: Path) -> None:
    """A symbolic link to a directory beside it, `elsewhere`."""
    (path.parent / "elsewhere").mkdir()
    path.symlink_to("elsewhere")


def in_the_way(make: Callable[[Path], object]) -> Prepare:
    """Such things lie where every file of the session would: the first choice of a run file, and all else of
    the second session's.
    """

    def prepare(directory: Path, shim: Shim) -> dict[str, str]:
        shim.set(frozen_s=SECOND)
        logs = directory / LOG_DIRECTORY
        logs.mkdir()
        first, second = (new_session_id(datetime.fromtimestamp(SECOND), attempt) for attempt in (1, 2))
        names = file_names(second) | {
            "records": file_names(first)["records"],
            "csv": intervals_name(second),
            "curves": "tensorboard",
        }
        for name in (*names.values(), f".{names['summary']}.tmp"):
            make(logs / name)
        return {}

    return prepare


def two_jobs(running: Job) -> None:
    """A second one of the same second in the same directory; the clock goes on when both have begun."""
    running.start_another()
    fs.wait_until(lambda: len(running.run_files()) == 2, "two run files")
    running.shim.set(frozen_s=0)


def replace_logs_by_link(running: Job) -> None:
    """The directory is moved away, a link to another one stands in its place."""
    running.wait_for_step(1)
    running.logs.rename(running.directory / "moved")
    link_to_directory(running.logs)
