"""The host of a training process, read from /proc."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from flagscale_perf.spine.jsonl import encode
from flagscale_perf.store.decoder import decode
from flagscale_perf.training.host import (
    PERIOD_NS,
    HostReader,
    HostRecord,
    HostStretch,
    HostWindow,
    MachineReader,
)
from tests.fakes import MS, SECOND


def test_of_a_busy_process_what_it_did_not_run_it_waited() -> None:
    """Two on one core, against the caller's own clock."""
    core = min(os.sched_getaffinity(0))
    busy = f"import os; os.sched_setaffinity(0, {{{core}}}); print(flush=True)\nwhile True: pass"
    command = [sys.executable, "-c", busy]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as one,
        subprocess.Popen(command, stdout=subprocess.PIPE) as other,
    ):
        for process in (one, other):
            assert process.stdout is not None
            process.stdout.readline()
        reader = HostReader(one.pid, lambda: time.monotonic_ns() * PERIOD_NS)
        before_ns, (first,) = time.monotonic_ns(), reader.take()
        time.sleep(0.3)
        (last,), after_ns = reader.take(), time.monotonic_ns()
        one.kill()
        other.kill()
    ran_ns, waited_ns = last.on_cpu_ns - first.on_cpu_ns, last.run_delay_ns - first.run_delay_ns
    assert waited_ns > 20 * MS
    assert ran_ns + waited_ns <= 1.2 * (after_ns - before_ns)
    assert (last.cores, last.memory_available_bytes > 0, last.network_bytes >= 0) == (1, True, True)


def test_what_the_system_does_not_tell_is_unknown_and_so_it_is_in_a_file() -> None:
    (reading,) = HostReader(1 << 30, lambda: 7).take()
    assert reading[:4] == (7, None, None, None)
    assert decode(encode(reading)) == reading
    assert decode(b'{"kind":"host","at_ns":7}\n') == HostRecord(7)


def test_a_reading_is_due_once_a_second() -> None:
    now = [5]
    reader = HostReader(os.getpid(), lambda: now[0])
    counts = []
    for at_ns in (5, 6, 5 + PERIOD_NS, 6 + PERIOD_NS):
        now[0] = at_ns
        counts.append(len(reader.take()))
    assert counts == [1, 0, 1, 0]


def test_a_stretch_has_what_its_counters_grew_by_since_the_one_before() -> None:
    window = HostWindow()
    for second in range(5):
        window.add(HostRecord(second * SECOND, 4, 100 * MS * second, memory_available_bytes=9 - second))
    window.advance(2 * SECOND)
    assert window.close() == HostStretch(2 * SECOND, 4, 200 * MS, memory_available_bytes=7)
    assert window.close() == HostStretch()  # no reading in it
    window.advance(9 * SECOND)
    assert window.close() == HostStretch(2 * SECOND, 4, 200 * MS, memory_available_bytes=5)
    window.add(HostRecord(9 * SECOND, 4, 0))  # of another process: its counters began anew
    window.advance(9 * SECOND)
    assert window.close() == HostStretch(5 * SECOND, 4)


def test_processes_of_one_machine_that_are_read_at_one_moment_read_it_once() -> None:
    machine = MachineReader()
    first = machine.read(7)
    assert machine.read(8) is first
    assert machine.read(7 + PERIOD_NS) is not first
