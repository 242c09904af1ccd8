"""Starts the processes of a bandwidth test on this machine and reads their points."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import flagscale_perf
from flagscale_perf.bench.bandwidth.job import Job, Measured
from flagscale_perf.bench.ports import HOST
from flagscale_perf.spine import companion
from flagscale_perf.spine.errors import PerfError

MODULE = "flagscale_perf.bench.bandwidth.rank"
END_S = 5.0  # for a rank to exit by itself
MAX_LINES = 3  # shown of a rank's stderr
_ROOT = str(Path(flagscale_perf.__file__).resolve().parents[1])


def run(job: Job, port: int, module: str = MODULE) -> Iterator[Measured]:
    """Yields the points of ranks that it starts and in any case stops. Raises PerfError if one fails."""
    read_fd, write_fd = os.pipe()
    with contextlib.ExitStack() as ends:
        lines = ends.enter_context(os.fdopen(read_fd, encoding="utf-8"))
        logs = [ends.enter_context(tempfile.TemporaryFile("w+")) for _ in range(job.ranks)]
        processes: list[subprocess.Popen[str]] = []
        ends.callback(_end, processes)
        try:
            for rank, log in enumerate(logs):
                processes.append(_started(job, (module, str(rank), f"tcp://{HOST}:{port}"), write_fd, log))
        finally:
            os.close(write_fd)
        for line in lines:
            content = json.loads(line)
            if "error" in content:
                raise PerfError(_failed(content["rank"], content["error"]))
            yield Measured(**content)
        for rank, process in enumerate(processes):
            with contextlib.suppress(subprocess.TimeoutExpired):  # every point has arrived; `_end` stops it
                process.wait(END_S)
            if process.returncode:
                raise PerfError(_failed(rank, _tail(logs[rank], process.returncode)))


def _started(job: Job, words: tuple[str, ...], fd: int, log: IO[str]) -> subprocess.Popen[str]:
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))
    with companion.unsignalled():
        process = subprocess.Popen(
            companion.module_command(*words, str(fd)),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=(fd,),
            env=environment,
            text=True,
            start_new_session=True,
        )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it stays open: its end is this process's, however that comes
        process.stdin.write(job.encode() + "\n")
        process.stdin.flush()
    return process


def _end(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _failed(rank: int, why: str) -> str:
    first = why.strip().split("\n")[0]
    return f"rank {rank} failed: {first}; what was measured before is kept"


def _tail(log: IO[str], code: int) -> str:
    log.seek(0)
    lines = [line.strip() for line in log.read().splitlines() if line.strip()]
    said = " | ".join(lines[-MAX_LINES:])
    return f"exit {code}" + (f", {said}" if said else "")
