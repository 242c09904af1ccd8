"""Warm interpreters (tests/processes/warm.py) for scripts, and for what starts Python by itself."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.processes import warm
from tests.processes.flagscale import warm_python

# What the interpreter does with its words. The ranks of a bandwidth test write to an open file, their last
# word; a warm process gets no others than its three, so stdout is that file.
AS_GIVEN = '"$@"'
POINTS_TO_STDOUT = '"$2" "$3" "$4" "$5" 1 >"/proc/self/fd/$6"'


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
