"""What light processes have in common; how they end is a matter of tests/processes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE

import pytest

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


HELPER = """
import signal, sys
from flagscale_perf.spine import companion
companion.settle()
print("settled", len(signal.pthread_sigmask(signal.SIG_BLOCK, ())), flush=True)
print("told", sys.stdin.read(1), flush=True)
"""
# SIGSEGV and the like would end a process by themselves, too, but not where somebody else sends them.
SENT = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


@pytest.mark.parametrize("is_detached", [False, True])
def test_no_signal_ends_it_from_its_first_moment_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_detached: bool
) -> None:
    (tmp_path / "the_helper.py").write_text(HELPER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with companion.start("the_helper", stdin=PIPE, stdout=PIPE, is_detached=is_detached) as helper:
        assert helper.stdin is not None and helper.stdout is not None
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before

        def signals() -> None:
            for number in SENT:
                os.killpg(helper.pid, number)

        while not select.select([helper.stdout], [], [], 0)[0]:
            signals()
        assert helper.stdout.readline() == b"settled 0\n"
        signals()
        helper.stdin.write(b"x")
        assert helper.stdout.read() == b"told x\n"
    assert helper.returncode == 0


def test_a_fault_of_its_own_ends_it() -> None:
    code = "import os; from flagscale_perf.spine import companion; companion.settle(); os.abort()"
    assert subprocess.run([sys.executable, "-c", code], timeout=LONG_S).returncode == -signal.SIGABRT
