"""One damaged file through every command that reads run files; what must hold of each."""

from __future__ import annotations

import contextlib
import io
import json
import re
import resource
import signal
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from flagscale_perf.cli import EXIT_MISTAKE, main

# Anything but text and line ends: C0, DEL, C1, line and paragraph separators, marks and overrides of
# bidirectional text, surrogates.
NOTHING_READ = 1  # of `report`: there is a header and nothing else
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
BASE_CPU_S, CPU_S_PER_BYTE = (
    5.0,
    2e-6,
)  # of a busy machine; a reader whose time grows with the square of a line passes it
NAME = "perf_records_20240129_103000.jsonl"


class Finding(NamedTuple):
    """What did not hold.

    Attributes:
        words: the command.
        what: one line.
        detail: a traceback, or what was printed.
    """

    words: list[str]
    what: str
    detail: str


class _TooSlow(Exception):
    pass


def commands(path: Path) -> list[list[str]]:
    """Every command that reads a run file, on this one."""
    trace = str(path.with_name("trace.json"))
    return [
        ["report", str(path)],
        ["report", "--all-sessions", str(path.parent)],
        ["watch", "--once", str(path)],
        ["trace-export", "-o", trace, str(path)],
    ]


def findings(content: bytes, directory: Path) -> list[Finding]:
    """Of the content as a run file; the directory is used again and again."""
    path = directory / NAME
    path.write_bytes(content)
    return findings_of(path, len(content))


def findings_of(path: Path, size_bytes: int) -> list[Finding]:
    """Of a run file with what is beside it, of so many bytes."""
    return [found for words in commands(path) if (found := _finding(words, size_bytes)) is not None]


def _finding(words: list[str], size_bytes: int) -> Finding | None:
    stdout, stderr = io.StringIO(), io.StringIO()
    try:
        with (
            contextlib.redirect_stdout(stdout),
            contextlib.redirect_stderr(stderr),
            _cpu_limit(BASE_CPU_S + size_bytes * CPU_S_PER_BYTE),
        ):
            code = main(words)
    except _TooSlow:
        return Finding(words, f"too slow for {size_bytes} bytes", traceback.format_exc())
    except BaseException as error:  # whatever it is, nothing may come out
        return Finding(words, f"{type(error).__name__}: {str(error)[:200]}", traceback.format_exc())
    return _judged(words, code, stdout.getvalue(), stderr.getvalue())


def _judged(words: list[str], code: int, stdout: str, stderr: str) -> Finding | None:
    nothing_read = code == NOTHING_READ and words[0] == "report"
    if code not in (0, EXIT_MISTAKE) and not nothing_read:
        return Finding(words, f"exit code {code}", stderr)
    if code == EXIT_MISTAKE and not stderr.strip():
        return Finding(words, "refused without a reason", stdout)
    for text in (stdout, stderr):
        if unsafe := UNSAFE.search(text):
            return Finding(
                words,
                f"{unsafe[0]!r} reached the terminal",
                repr(text[max(0, unsafe.start() - 60) : unsafe.end() + 20]),
            )
    if words[0] == "trace-export" and code == 0:
        try:
            json.loads(Path(words[2]).read_text(), parse_constant=_refuse)
        except ValueError as error:
            return Finding(words, f"the trace is no JSON: {error}", "")
    return None


def _refuse(name: str) -> None:
    raise ValueError(name)


@contextlib.contextmanager
def _cpu_limit(seconds: float) -> Iterator[None]:
    """Raises _TooSlow inside after so much of this process's time: that of a busy machine's other processes
    does not count.
    """

    def stop(number: int, frame: object) -> None:
        raise _TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def limit_memory(more_bytes: int) -> None:
    """From now on this process may map so much more than it has; beyond it there is a MemoryError."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more_bytes,) * 2)
