"""The pipe between a writer process and its trainer, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from subprocess import PIPE

import pytest

from flagscale_perf.writer import outlet
from flagscale_perf.writer.outlet import LOG, MAX_UNHEARD_BYTES, TROUBLE, Outlet, lines_of

SAYS = "from flagscale_perf.writer.outlet import Outlet; o = Outlet(1); "


def heard_of(program: str) -> tuple[list[str], int]:
    """The lines, and how often the trainer looked meanwhile."""
    looks: list[None] = []
    with subprocess.Popen([sys.executable, "-c", program], stdout=PIPE) as process:
        lines = list(lines_of(process, lambda: looks.append(None)))
    return lines, len(looks)


def test_what_is_said_is_heard_line_by_line() -> None:
    lines, _ = heard_of(
        SAYS
        + "o.log('one'); o.trouble('two\\nlines \\x1b[31m'); print('a traceback', flush=True); o.finish(); print('late')"
    )
    assert lines == [f"{LOG}one", f"{TROUBLE}two\\x0alines \\x1b[31m", "a traceback"]


def test_a_silent_writer_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet, "CHECK_S", 0.05)
    lines, looks = heard_of("import time; time.sleep(0.5)")
    assert lines == []
    assert looks > 0


def test_a_dead_writers_end_is_seen_though_its_child_holds_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet, "CHECK_S", 0.05)
    child = "import os, sys, time\nif os.fork():\n    print('last words', flush=True)\n    os._exit(3)\ntime.sleep(2)"
    lines, _ = heard_of(child)
    assert lines == ["last words"]


def test_a_busy_console_keeps_nobody_waiting_and_is_told_later() -> None:
    read, write = os.pipe()
    speaker = Outlet(write)
    for number in range(100_000):
        speaker.log(f"line {number}")
    heard = b""
    while chunk := _read(read):
        heard += chunk
        speaker.push()
    os.close(read)
    os.close(write)
    lines = heard.decode().splitlines()
    assert lines == [f"{LOG}line {number}" for number in range(len(lines))]
    assert len(heard) >= MAX_UNHEARD_BYTES


def _read(fd: int) -> bytes:
    os.set_blocking(fd, False)
    try:
        return os.read(fd, 1 << 16)
    except BlockingIOError:
        return b""


def test_nobody_listening_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    speaker = Outlet(write)
    speaker.log("into the void")
    speaker.finish()
    os.close(write)
