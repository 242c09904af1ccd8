"""A light process beside a training: a fresh interpreter that imports no torch, in a process session of its
own.

From its first moment on it reacts to no signal that can be ignored: what stops a job, or tells a training
that its time is nearly over, is sent to every process there. It notices the end of its parent by itself and
ends soon after it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import flagscale_perf

NICENESS = 10
ORPHAN_CHECK_S = 0.5
ORPHAN_LIMIT_S = 5.0  # a process whose parent is gone and that gets nothing done for so long hangs
PATIENCE_S = 60.0  # the same while it has something that is saved nowhere
RESCUE_S = 10.0  # to save that elsewhere
# Of an interpreter that imports nothing: it is gone milliseconds after its start.
_FORK = "import os, sys; os.fork() and os._exit(0); os.execv(sys.argv[1], sys.argv[1:])"
_PACKAGE_ROOT = str(Path(flagscale_perf.__file__).resolve().parents[1])
# What `-P -m` does, which Python 3.10 does not know.
_MODULE = (
    "import runpy, sys; del sys.path[0], sys.argv[0]; "
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
# Left alone: what cannot be ignored, what stops a process for a while, and what does nothing anyway.
_HARMLESS = {
    *(signal.SIGKILL, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT),
    *(signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH),
}
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # tensorboard imports numpy


def module_command(module: str, *words: str) -> list[str]:
    """Runs a module whatever the working directory holds: no file there is imported."""
    apart = ["-P", "-m"] if sys.version_info >= (3, 11) else ["-c", _MODULE]
    return [sys.executable, *apart, module, *words]


def start(
    module: str, *words: str, pass_fds: Sequence[int] = (), is_detached: bool = False, **streams: Any
) -> subprocess.Popen[bytes]:
    """Runs `python -m module words`; `streams` as subprocess has them. Raises OSError and
    subprocess.SubprocessError.

    `is_detached`: it outlives this process and is not its child, so it also survives where all children are
    killed, as Ray does. What is returned is then the process that has started it, which ends at once.
    """
    command = module_command(module, *words)
    if is_detached:
        command = [sys.executable, "-I", "-S", "-c", _FORK, *command]
    environment = dict(os.environ) | dict.fromkeys(_ONE_THREAD, "1")
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (_PACKAGE_ROOT, os.environ.get("PYTHONPATH"))))
    with unsignalled():
        return subprocess.Popen(
            command, bufsize=0, env=environment, pass_fds=pass_fds, start_new_session=True, **streams
        )


@contextlib.contextmanager
def unsignalled() -> Iterator[None]:
    """A process that is started meanwhile gets no signal before it calls `settle`: it begins with all of them
    blocked, as this thread is meanwhile. What comes here then, comes a moment later.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def settle() -> None:
    """Ignores every signal whose default is to end a process: this one ends after its parent. Call it first.

    A fault of its own (SIGSEGV, SIGABRT) ends it nevertheless: the kernel and the C library see to that.
    """
    for number in signal.valid_signals() - _HARMLESS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def give_way() -> None:
    """Lowers the priority. Call it once the process is at work: with a low priority, starting on a busy
    machine would take too long.
    """
    with contextlib.suppress(OSError):
        os.nice(NICENESS)


class Unsaved(NamedTuple):
    """Records that would be lost with this process.

    Attributes:
        is_there: whether there are any.
        rescue: saves them elsewhere.
    """

    is_there: Callable[[], bool]
    rescue: Callable[[], object]


def end_after_parent(
    is_orphan: Callable[[], bool], progress: Callable[[], int], unsaved: Unsaved | None = None
) -> None:
    """Ends the process some time after its parent, or whoever it works for, even where its disk hangs. While
    `progress` grows, it may go on; at the end, what is unsaved is first saved elsewhere.
    """
    threading.Thread(
        target=_end, args=(is_orphan, progress, unsaved), name="flagscale_perf orphan", daemon=True
    ).start()


def _end(is_orphan: Callable[[], bool], progress: Callable[[], int], unsaved: Unsaved | None) -> None:
    done: int | None = None
    since = time.monotonic()
    while True:
        time.sleep(ORPHAN_CHECK_S)
        now = progress() if is_orphan() else None
        if now is not None and now == done:
            rest = unsaved if unsaved is not None and unsaved.is_there() else None
            if time.monotonic() - since < (PATIENCE_S if rest else ORPHAN_LIMIT_S):
                continue
            if rest:
                _briefly(rest.rescue)
            os._exit(1)
        done, since = now, time.monotonic()  # a long backlog is no hang


def _briefly(call: Callable[[], object]) -> None:
    """Calls it, and waits `RESCUE_S` at most: the other place may hang, too."""
    caller = threading.Thread(target=call, name="flagscale_perf rescue", daemon=True)
    caller.start()
    caller.join(RESCUE_S)


class Alarm:
    """Sleep that a byte on a pipe ends, or the end of a process that is watched."""

    def __init__(self, fd: int | None = None) -> None:
        """`fd`: the pipe's, if there is one."""
        self._fd = fd
        self._poll = select.poll()
        if fd is not None:
            self._poll.register(fd, select.POLLIN)

    def watch(self, pid_fd: int) -> None:
        """The end of this process rings once; takes the descriptor over."""
        self._poll.register(pid_fd, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """Sleeps so long, or less."""
        for fd, _ in self._poll.poll(seconds * 1000):
            if fd != self._fd or not os.read(fd, 4096):
                self._poll.unregister(fd)
                if fd != self._fd:
                    os.close(fd)
