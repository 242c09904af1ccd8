"""Warm interpreters (tests/processes/warm.py) for scripts, and for what starts Python by itself."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from tests.processes import warm
from tests.processes.flagscale import AGENT, warm_python

# What the interpreter does with its words. The ranks of a bandwidth test write to an open file, their last
# word; a warm process gets no others than its three, so stdout is that file.
AS_GIVEN = '"$@"'
POINTS_TO_STDOUT = '"$2" "$3" "$4" "$5" 1 >"/proc/self/fd/$6"'

# Read by every Python at its start: torchrun, and what it runs with the monitor, become warm interpreters.
TORCHRUN = """
import os, sys
words = [word for word in sys.orig_argv[1:] if word != "-u"]
warm = ["torch.distributed.run"], ["flagscale_perf.launch"]
if {socket!r} in os.environ and words[:1] == ["-m"] and words[1:2] in warm:
    os.execv(sys.executable, [sys.executable, {agent!r}, "as-it-is", *words])
"""


def warm_environment() -> dict[str, str]:
    """What a process needs to be a fork of this process's server."""
    return {"OMP_NUM_THREADS": warm.THREADS, warm.SOCKET: warm.address()}


def make_python_warm(directory: Path, monkeypatch: pytest.MonkeyPatch, words: str = AS_GIVEN) -> None:
    """Until the end of the test `sys.executable` is a warm interpreter."""
    environment, command = warm_environment(), shlex.join(warm_python())
    python = directory / "python"
    python.write_text(f"#!/bin/sh\nexec {command} {words}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def make_torchrun_warm(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the end of the test, and what it launches with the monitor, in every process that is started."""
    for name, value in torchrun_environment(directory, os.environ.get("PYTHONPATH", "")).items():
        monkeypatch.setenv(name, value)


def torchrun_environment(directory: Path, path: str, address: str = "") -> dict[str, str]:
    """Variables that make torchrun, where it is started with them, a warm interpreter, and its workers, too.
    `path` is its PYTHONPATH; `address` is of another server than this process's.
    """
    text = TORCHRUN.format(socket=warm.SOCKET, agent=str(AGENT))
    (directory / "sitecustomize.py").write_text(text)
    paths = os.pathsep.join(filter(None, (str(directory), path)))
    return {"PYTHONPATH": paths, warm.SOCKET: address or warm.address()}
