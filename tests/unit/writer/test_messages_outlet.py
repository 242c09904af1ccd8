"""The pipe between a writer process and its trainer, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from subprocess import PIPE

import pytest

from flagscale_perf.writer import messages as messages_module
from flagscale_perf.writer.messages import (
    MAX_UNREAD_BYTES,
    Figures,
    Line,
    Message,
    Outlet,
    Stray,
    Trouble,
    decode,
    messages_of,
)

SENDS = "from flagscale_perf.writer.messages import *; o = Outlet(1); "


def sent_by(program: str) -> list[Message]:
    """The messages of a process that runs it."""
    with subprocess.Popen([sys.executable, "-c", program], stdout=PIPE) as process:
        return list(messages_of(process, lambda: None))


def test_what_is_sent_is_received_message_by_message() -> None:
    messages = sent_by(
        SENDS
        + "o.send(Line('one')); o.send(Figures({'mfu': 0.5})); o.send(Trouble('two\\nlines \\x1b[31m')); "
        "print('a traceback', flush=True); o.finish(); print('late')"
    )
    assert messages == [
        Line("one"),
        Figures({"mfu": 0.5}),
        Trouble("two\\x0alines \\x1b[31m"),
        Stray("a traceback"),
    ]


def test_a_silent_writer_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages_module, "CHECK_S", 0.05)
    program = "import sys; sys.stdin.read()"  # until somebody has looked
    with subprocess.Popen([sys.executable, "-c", program], stdin=PIPE, stdout=PIPE) as process:
        assert process.stdin is not None
        assert list(messages_of(process, process.stdin.close)) == []


def test_a_dead_writers_end_is_seen_though_its_child_holds_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages_module, "CHECK_S", 0.05)
    child = (
        "import os, sys, time\nif os.fork():\n    print('last words', flush=True)\n    "
        "os._exit(3)\ntime.sleep(2)"
    )
    messages = sent_by(child)
    assert messages == [Stray("last words")]


def test_a_busy_console_keeps_nobody_waiting_and_gets_it_later() -> None:
    read, write = os.pipe()
    sender = Outlet(write)
    for number in range(100_000):
        sender.send(Line(f"line {number}"))
    received = b""
    while chunk := _read(read):
        received += chunk
        sender.push()
    os.close(read)
    os.close(write)
    messages = [decode(line) for line in received.splitlines()]
    assert messages == [Line(f"line {number}") for number in range(len(messages))]
    assert len(received) >= MAX_UNREAD_BYTES


def _read(fd: int) -> bytes:
    os.set_blocking(fd, False)
    try:
        return os.read(fd, 1 << 16)
    except BlockingIOError:
        return b""


def test_nobody_listening_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    sender = Outlet(write)
    sender.send(Line("into the void"))
    sender.finish()
    os.close(write)
