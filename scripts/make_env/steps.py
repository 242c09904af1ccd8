"""Steps of a longer work: a line with its time for each, and the output of its commands in a file."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

TAIL_LINES = 20
COMMAND = "\n$ "  # stands before each command in a log
AGAIN = "Type the same command again: it goes on where it was."
# What stands in a log -> why the step failed, and what to do; the first that fits is said.
UNREACHABLE = "a package index cannot be reached, or broke off"
ABSENT = "no package index that pip is set up for has what is locked, for this Python and machine"
REASONS = (
    (r"No space left on device|os error 28\b|Disk quota exceeded", "the disk is full", f"Make room. {AGAIN}"),
    (
        r"Hash mismatch|DO NOT MATCH THE HASHES|Failed to extract|BadZipFile",
        "a file from the index is not the one whose hash is locked",
        "Either it was damaged on its way: type the same command again. Or this index has files of its own:"
        " lock them with `make lock`.",
    ),
    (
        r"archive-v\d+/\S+ No such file",
        "uv's cache is damaged",
        "Remove the directory above archive-..., below, or choose another: UV_CACHE_DIR=DIRECTORY make demo",
    ),
    (r"Python\.h: No such file", "Python's headers are missing", "On Debian: apt-get install python3-dev"),
    (
        r"certificate verify failed|invalid peer certificate|CERTIFICATE_VERIFY_FAILED",
        "the certificate of the package index is not trusted",
        "Name the authority's file, as for pip: PIP_CERT=FILE; on Debian: apt-get install ca-certificates",
    ),
    (
        r"error sending request|[Ff]ailed to (fetch|download)|[Cc]onnection (broken|reset)|NewConnectionError"
        r"|timed out|IncompleteRead|HTTP (status|error)|error decoding response body",
        UNREACHABLE,
        f"See `python3 -m pip config list` for which one, and whether the network is there. {AGAIN}",
    ),
    (
        r"No solution found|No matching distribution|not found in the package registry|no wheels with a",
        ABSENT,
        "See `python3 -m pip config list` for the indexes, and whether they answer;"
        " PYTHON=python3.12 names another Python.",
    ),
    (r"Permission denied|os error 13\b", "a file or directory may not be written", "See which one, below."),
)


class Failure(Exception):
    """A step that failed.

    Attributes:
        title: of the step.
        log: the file with what its commands printed.
        reason: why, as far as the log tells; else empty.
        advice: what to do next.
    """

    def __init__(self, title: str, log: Path) -> None:
        self.title, self.log = title, log
        # What the step tried before does not tell of what failed.
        text = log.read_text(encoding="utf-8", errors="replace").rpartition(COMMAND)[2]
        found = ((why, what) for pattern, why, what in REASONS if re.search(pattern, text))
        self.reason, self.advice = next(found, ("", "The end of its log, below, should say why."))
        super().__init__(title)

    @property
    def is_absent(self) -> bool:
        """Whether no index has what was asked for."""
        return self.reason == ABSENT

    def __str__(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        why = f": {self.reason}" if self.reason else ""
        shown = "\n".join(f"  | {line}" for line in lines[-TAIL_LINES:])
        return f"failed: {self.title}{why}\n{self.advice}\nThe end of {self.log}:\n{shown}"


class Step:
    """One of them, while it runs. Its title may change before it ends."""

    def __init__(self, steps: Steps, title: str, log: Path) -> None:
        self.title, self.log = title, log
        self._steps = steps
        log.write_text("", encoding="utf-8")

    def run(self, words: list[str], variables: dict[str, str]) -> None:
        """Runs a command to its end. Raises Failure where its exit status is not 0."""
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"{COMMAND}{shlex.join(words)}\n")
            file.flush()
            process = self._steps.start(words, variables, file.fileno())
        status = process.wait()
        self._steps.ended(process)
        if status:
            raise Failure(self.title, self.log)


class Steps:
    """Runs steps, also beside one another, and prints a line when one has ended.

    On a terminal a last line says what runs at the moment.

    Attributes:
        failure: what ended the first step that failed; it ends all the others.
    """

    def __init__(self, logs: Path, directory: Path) -> None:
        self._logs, self._directory = logs, directory
        self._open: list[Step] = []
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self.failure: BaseException | None = None
        self._is_stopped = False
        self._start = time.monotonic()
        if sys.stdout.isatty():
            threading.Thread(target=self._show, daemon=True).start()

    @contextlib.contextmanager
    def step(self, title: str, name: str) -> Iterator[Step]:
        """A step whose log is called `name`; what it raises ends all the others."""
        step = Step(self, title, self._logs / f"{name}.txt")
        start = time.monotonic()
        self._open.append(step)
        try:
            yield step
        except BaseException as error:
            self.failure = self.failure or error
            self.stop()
            raise
        finally:
            self._open.remove(step)
        self.say(f"{step.title:<44}{time.monotonic() - start:6.1f} s")

    def say(self, line: str) -> None:
        """Prints a line."""
        with self._lock:
            print(f"\r\x1b[K{line}" if sys.stdout.isatty() else line, flush=True)

    def start(self, words: list[str], variables: dict[str, str], output: int) -> subprocess.Popen[bytes]:
        """A process in a group of its own, which `stop` ends as a whole."""
        with self._lock:
            process = subprocess.Popen(
                words, env=variables, cwd=self._directory, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
            self._running.add(process)
        if self._is_stopped:
            self.stop()
        return process

    def ended(self, process: subprocess.Popen[bytes]) -> None:
        """Its number may be another process's from now on."""
        with self._lock:
            self._running.discard(process)

    def stop(self) -> None:
        """Ends what runs, and what is started later."""
        with self._lock:
            self._is_stopped = True
            for process in self._running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)

    def _show(self) -> None:
        while True:
            time.sleep(1)
            with self._lock:
                if self._open:
                    names = ", ".join(step.title for step in self._open)
                    line = f"{time.monotonic() - self._start:.0f} s: {names}"
                    print(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}", end="", flush=True)
