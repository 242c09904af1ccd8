"""What a process waits for a CPU is counted; what it waits for anything else is not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from tests.faults import load as load_module
from tests.faults.load import Load

BUSY = "import time\nwhile time.process_time() < 0.3: pass"
IDLE = "import time; time.sleep(0.3)"
TRIES = 4


def waited_s(code: str, times: int) -> float:
    """By the first of so many processes on one CPU."""
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    try:
        started = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(times)]
    finally:
        os.sched_setaffinity(0, cpus)
    load = Load(lambda: [started[0].pid])
    load.waited_s()
    with load.watched():
        while os.waitid(os.P_PID, started[0].pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            time.sleep(0.01)
        waited = load.waited_s()  # it has ended, and nobody has reaped it: the count is still there
    for each in started:
        each.wait()
    return waited


def test_of_three_that_share_a_cpu_each_waits_for_the_others() -> None:
    """Two thirds of the time that all three take, of which it has worked 0.3 s; of a few tries, as one whose
    others begin late, or are held up by something else, has the CPU to itself.
    """
    assert any(waited_s(BUSY, 3) > 0.3 for _ in range(TRIES))


def test_waiting_side_by_side_is_no_more_than_the_time_that_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three threads that wait for 2 s between two looks, which lie 1 s apart."""
    delays, clock = {1: 0, 2: 0, 3: 0}, iter([10.0, 11.0, 12.0, 13.0])
    monkeypatch.setattr(load_module, "run_delay_ns", lambda pid: dict(delays))
    monkeypatch.setattr(load_module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    load = Load(lambda: [7])
    assert load.waited_s() == 0
    delays |= dict.fromkeys(delays, 2_000_000_000)
    assert load.waited_s() == 1
    delays[1] += 250_000_000
    assert load.waited_s() == 1.25


def test_sleep_is_no_waiting_for_a_cpu() -> None:
    assert any(waited_s(IDLE, 1) < waited_s(BUSY, 3) for _ in range(TRIES))
