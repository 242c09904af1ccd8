"""What a piece of code may leave behind in its process, seen before and after."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

OUR_MODULES = (
    "flagscale_perf",
    "tests",
    "test_",
)  # whose import hooks count; six and setuptools install hooks of their own
# Others': pytest names the test; torch the cache of its compiler, at its first optimizer or dispatch mode.
FOREIGN_VARIABLES = frozenset({"PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR"})
GRACE_S = 60.0  # only a test that fails waits for so long
MAY_STILL_END = (
    "thread",
    "child process",
    "open",
)  # a thread told to stop, a child told to end: they get GRACE_S for it


@dataclass(frozen=True)
class Traces:
    """Everything of this process that a test must leave as it found it."""

    threads: frozenset[threading.Thread]
    children: frozenset[psutil.Process]
    files: frozenset[str]
    import_hooks: tuple[object, ...]
    environment: dict[str, str]
    directory: str

    @classmethod
    def now(cls) -> Traces:
        """As things stand."""
        return cls(
            threads=frozenset(t for t in threading.enumerate() if not _is_helper(t)),
            children=frozenset(c for c in _children() if not _is_resource_tracker(c)),
            files=frozenset(_open_files()),
            import_hooks=tuple(h for h in sys.meta_path if _home(h).startswith(OUR_MODULES)),
            environment={name: value for name, value in os.environ.items() if name not in FOREIGN_VARIABLES},
            directory=os.getcwd(),
        )

    def left_since(self, before: Traces) -> list[str]:
        """One phrase for each thing that is here now and was not, or was different, before."""
        found = [f"thread {t.name!r}" for t in self.threads - before.threads]
        found += [f"child process {_describe(c)}" for c in self.children - before.children]
        found += [f"open {f}" for f in self.files - before.files]
        if self.import_hooks != before.import_hooks:
            found.append(f"sys.meta_path holds {self.import_hooks}, before {before.import_hooks}")
        changed = {name for name, _ in self.environment.items() ^ before.environment.items()}
        found += [
            f"environment variable {n}={self.environment.get(n)!r}, before {before.environment.get(n)!r}"
            for n in changed
        ]
        if self.directory != before.directory:
            found.append(f"working directory {self.directory}, before {before.directory}")
        return sorted(found)


def left_behind(
    before: Traces, grace_s: float = GRACE_S, allowed: Callable[[str], bool] = lambda row: False
) -> list[str]:
    """What has been left since `before` and is not `allowed`, after giving threads, children and files
    `grace_s` to end.
    """
    found = _left(before, allowed)
    deadline = time.monotonic() + grace_s
    while any(row.startswith(MAY_STILL_END) for row in found) and time.monotonic() < deadline:
        gc.collect()  # sockets and files in reference cycles close here
        time.sleep(0.02)
        found = _left(before, allowed)
    return found


def _left(before: Traces, allowed: Callable[[str], bool]) -> list[str]:
    return [row for row in Traces.now().left_since(before) if not allowed(row)]


def _home(hook: object) -> str:
    return hook.__module__ if isinstance(hook, type) else type(hook).__module__


def _open_files() -> list[str]:
    """Sockets, and files below the directory for temporary files, where tests write."""
    temporary = tempfile.gettempdir() + "/pytest-"
    targets = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(descriptor)
        except FileNotFoundError:  # the listing's own descriptor
            continue
        if target.startswith(("socket:", temporary)):
            targets.append(target)
    return targets


def _is_helper(thread: threading.Thread) -> bool:
    """A foreign thread, or the one that pyzmq keeps for the process once it has sent without a copy."""
    return isinstance(thread, threading._DummyThread) or type(thread).__module__ == "zmq.utils.garbage"


def _children() -> list[psutil.Process]:
    """As psutil has them, without a look at every process of the machine: this is asked twice a test."""
    lists = list(Path("/proc/self/task").glob("*/children"))
    if not lists:  # a kernel built without them
        return psutil.Process().children()
    pids: list[str] = []
    for file in lists:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has just ended
            pids += file.read_text().split()
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(int(pid)))
    return found


def _is_resource_tracker(child: psutil.Process) -> bool:
    """Of multiprocessing: one a process, kept for its whole life."""
    try:
        return "multiprocessing.resource_tracker" in " ".join(child.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


def _describe(child: psutil.Process) -> str:
    try:
        return f"{child.pid} ({child.status()}): {' '.join(child.cmdline())}"
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return f"{child.pid} (ended, not waited for)"
