"""Run as a file, without this package: a command of somebody else's, which is killed where it takes too
long, also when whoever asked for it is gone. It ends as the command does, and says the last of what that said
on stderr.

    python -I limited.py SECONDS COMMAND [ARGUMENT ...]
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

KILLED = 124
_WORDS_BYTES = 200
_LOOK_MS = 100


def run(limit_s: float, command: Sequence[str]) -> tuple[int, str]:
    """Its exit code, `KILLED` where it took too long, and its last words. Raises OSError where it cannot be
    started.
    """
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    words = _follow(process, time.monotonic() + limit_s)
    if process.poll() is not None:
        return process.returncode if process.returncode >= 0 else 128 - process.returncode, words
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return KILLED, f"killed after {limit_s:g} s" + (f": {words}" if words else "")


def _follow(process: subprocess.Popen[bytes], until: float) -> str:
    """Waits for its end; what it has started may hold its stderr for longer."""
    assert process.stderr is not None
    fd, tail = process.stderr.fileno(), b""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while process.poll() is None and time.monotonic() < until:
        if poll.poll(_LOOK_MS):
            chunk = os.read(fd, 1 << 16)
            tail = (tail + chunk)[-_WORDS_BYTES:]
            if not chunk:
                poll.unregister(fd)
    if poll.poll(0):
        tail = (tail + os.read(fd, 1 << 16))[-_WORDS_BYTES:]
    return " ".join(tail.decode("utf-8", "replace").split())


def main() -> None:
    """The command line's command. Signals that the writer ignores, and its children with it, count again."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        code, words = run(float(sys.argv[1]), sys.argv[2:])
    except OSError as error:
        code, words = 127, str(error)
    with suppress(OSError):  # nobody reads it any more
        os.write(2, words.encode())
    os._exit(code)


if __name__ == "__main__":
    main()
