"""A storage unit on a machine that has something else to do: its process is stopped most of the time."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import ray
from transfer_queue import interface

RUN_S = 0.002  # what it gets between two pauses


@contextlib.contextmanager
def slowed(number: int | None, pause_s: float) -> Iterator[None]:
    """While this is entered, the unit of that number, from 0, is stopped for `pause_s` again and again."""
    if number is None:
        yield
        return
    units: dict[str, Any] = interface._TQ_STORAGE["SimpleStorage"]
    unit = list(units.values())[number]
    pid, name = ray.get(unit.__ray_call__.remote(lambda unit: (os.getpid(), unit.storage_unit_id)))
    print(
        f"storage unit {name} (process {pid}) is stopped for {pause_s * 1000:g} ms again and again",
        flush=True,
    )
    ended = threading.Event()
    thread = threading.Thread(target=_pause, args=(pid, pause_s, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _pause(pid: int, pause_s: float, ended: threading.Event) -> None:
    with contextlib.suppress(ProcessLookupError):
        while not ended.wait(RUN_S):
            os.kill(pid, signal.SIGSTOP)
            ended.wait(pause_s)
            os.kill(pid, signal.SIGCONT)
