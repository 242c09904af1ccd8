"""What light processes have in common; how they end is a matter of tests/processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from subprocess import PIPE

from flagscale_perf.spine import companion

LONG_S = 60.0


def test_a_byte_ends_the_sleep_and_the_end_of_the_pipe_rings_once() -> None:
    reader, writer = os.pipe()
    alarm = companion.Alarm(reader)
    os.write(writer, b"\n")
    start = time.monotonic()
    alarm.wait(LONG_S)
    os.close(writer)
    alarm.wait(LONG_S)
    assert time.monotonic() - start < LONG_S
    alarm.wait(0.001)  # comes back by itself
    os.close(reader)


def test_the_end_of_a_watched_process_ends_the_sleep() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=PIPE)
    alarm = companion.Alarm()
    watched = os.pidfd_open(child.pid)
    alarm.watch(watched)
    alarm.wait(0.001)
    start = time.monotonic()
    child.kill()
    alarm.wait(LONG_S)
    assert time.monotonic() - start < LONG_S
    assert not os.path.exists(f"/proc/self/fd/{watched}")
    child.communicate()


def test_it_is_a_light_interpreter_in_a_session_of_its_own() -> None:
    process = companion.start(
        "flagscale_perf", "--help", stdin=subprocess.DEVNULL, stdout=PIPE, stderr=subprocess.STDOUT
    )
    assert os.getsid(process.pid) != os.getsid(0)
    output, _ = process.communicate(timeout=LONG_S)
    assert (process.returncode, b"usage" in output.lower()) == (0, True)


def test_settled_it_gives_way_and_ignores_what_stops_a_job() -> None:
    code = (
        "import os, signal; before = os.nice(0); from flagscale_perf.spine import companion; "
        "companion.settle(); companion.give_way()\n"
        "os.kill(os.getpid(), signal.SIGTERM); print(os.nice(0) - before)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LONG_S)
    least_priority = 19  # where these tests give way already
    gives_way = min(companion.NICENESS, least_priority - os.nice(0))
    assert (result.returncode, result.stdout) == (0, f"{gives_way}\n")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
