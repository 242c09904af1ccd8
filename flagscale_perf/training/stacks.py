"""Python stacks of a process, as text: of this one, and by py-spy of another one, which goes on meanwhile."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from flagscale_perf.spine.units import printable

OURS = "flagscale_perf"  # threads of ours have names that begin so
MAX_FRAMES, MAX_THREADS, MAX_CHARACTERS = 40, 16, 160
PY_SPY, PY_SPY_S = "py-spy", 10.0
_PROC = "/proc"


class Stacks(NamedTuple):
    """What a process is in.

    Attributes:
        main: frames of the thread that is asked about, the innermost first, such as `train.py:12 step`.
            Files of Python's own library begin with `python3`, those of packages with the package.
        threads: the same of other threads, by their names.
        source: who has said it: "itself", "py-spy", "/proc" or "".
        state: of the process, as the system calls it; "" where it answers itself.
    """

    main: list[str]
    threads: dict[str, list[str]]
    source: str
    state: str = ""


def shortened(path: str) -> str:
    """The path of a package's file from the package on, of Python's own from `python3` on."""
    for packages in ("/site-packages/", "/dist-packages/"):
        if packages in path:
            return path.rpartition(packages)[2]
    _, found, rest = path.partition("/lib/python3")
    return f"python3{rest}" if found else path


def own(main: int) -> Stacks:
    """The stacks of this process without threads of ours; `main`: ident of the thread that is asked about."""
    # without the lock of `threading.enumerate`, which may be a part of what is looked for
    names = {ident: thread.name for ident, thread in dict(getattr(threading, "_active", {})).items()}
    found = {ident: list(_frames(frame)) for ident, frame in sys._current_frames().items()}
    others = {
        names.get(ident, f"thread {ident}"): frames
        for ident, frames in found.items()
        if ident != main and not names.get(ident, "").startswith(OURS)
    }
    return Stacks(found.get(main, []), _most(others), "itself")


def _most(threads: dict[str, list[str]]) -> dict[str, list[str]]:
    return dict(list(threads.items())[:MAX_THREADS])


def _frames(frame: FrameType | None) -> Iterator[str]:
    count = 0
    while frame is not None and count < MAX_FRAMES:
        yield _line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        frame, count = frame.f_back, count + 1


def _line(path: str, line: int | None, function: str) -> str:
    return printable(f"{shortened(path)}:{line} {function}")[-MAX_CHARACTERS:]


def of_process(pid: int) -> Stacks:
    """The stacks of another process, by py-spy where that is installed and may look; else what the system
    says of it. Neither stops it. Takes up to `PY_SPY_S`.
    """
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError):
        return _by_py_spy(pid)
    return Stacks([], {}, "/proc", _state(pid))


def _by_py_spy(pid: int) -> Stacks:
    program = shutil.which(PY_SPY) or str(Path(sys.executable).with_name(PY_SPY))
    words = [program, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    done = subprocess.run(words, capture_output=True, timeout=PY_SPY_S, check=True, stdin=subprocess.DEVNULL)
    main, others = list[str](), dict[str, list[str]]()
    for thread in json.loads(done.stdout):
        frames = [_line(each["filename"], each["line"], each["name"]) for each in thread["frames"]]
        name = thread.get("thread_name") or f"thread {thread['thread_id']}"
        if thread.get("os_thread_id") == pid:
            main = frames[:MAX_FRAMES]
        elif not name.startswith(OURS):
            others[printable(name)] = frames[:MAX_FRAMES]
    return Stacks(main, _most(others), PY_SPY, _state(pid))


def _state(pid: int) -> str:
    """Such as "stopped, in do_signal_stop"; "" where the system does not say."""
    with contextlib.suppress(OSError, IndexError):
        status = Path(f"{_PROC}/{pid}/status").read_text(errors="replace")
        state = next(line for line in status.splitlines() if line.startswith("State:"))
        words = state.partition("(")[2].rstrip(")")
        with contextlib.suppress(OSError):
            where = Path(f"{_PROC}/{pid}/wchan").read_text(errors="replace")
            return f"{words}, in {where}" if where not in ("", "0") else words
        return words
    return ""
