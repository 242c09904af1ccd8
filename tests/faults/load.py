"""How long a training has waited for a CPU: the part of its time that belongs to the machine's load."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

PERIOD_S = 0.05


def run_delay_ns(pid: int) -> dict[int, int]:
    """Of each thread: how long it was ready to run and did not, by the kernel's count; {} after its end."""
    found = {}
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                found[int(task.name)] = int((task / "schedstat").read_text().split()[1])
    return found


class Load:
    """Adds it up for the processes that train; what has ended counts as it was last seen."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        """`pids`: of those that train now."""
        self._pids = pids
        self._lock = threading.Lock()
        self._last: dict[int, int] = {}
        self._looked_s = time.monotonic()
        self._waited_s = 0.0

    def waited_s(self) -> float:
        """Until now, each thread from when it was first seen; between two looks no more than the time between
        them, however many threads have waited side by side.
        """
        with self._lock:
            now_s, waited_ns = time.monotonic(), 0
            for pid in self._pids():
                for thread, delay_ns in run_delay_ns(pid).items():
                    waited_ns += delay_ns - self._last.get(thread, delay_ns)
                    self._last[thread] = delay_ns
            self._waited_s += min(waited_ns / 1e9, now_s - self._looked_s)
            self._looked_s = now_s
            return self._waited_s

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Looks all the time: what ends inside counts to nearly its end."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(PERIOD_S):
                self.waited_s()

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
