"""A vLLM server of one arm, as a process with children of its own."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flagscale_perf.bench.ports import HOST, free_port
from flagscale_perf.spine.errors import PerfError

MODULE = "vllm.entrypoints.openai.api_server"
STOP_S = 20.0
POLL_S = 0.2
ASK_S = 5.0
TAIL_BYTES = 64 << 10
_LOG_HEAD = re.compile(r"^(?:\([^)]*\)\s*|(?:ERROR|INFO|WARNING) [\d-]+ [\d:]+ \[[^\]]*\]\s*)+")


@dataclass(frozen=True)
class Start:
    """How a server is started.

    Attributes:
        python: that has vLLM.
        options: of vLLM's server.
        environment: of its processes.
        log: file that takes what they print.
    """

    python: str
    options: Sequence[str]
    environment: Mapping[str, str]
    log: Path


def started(start: Start, words: Sequence[str], talks: bool = False) -> subprocess.Popen[bytes]:
    """Starts the Python with these arguments, as the leader of a session. Its stderr is the log, and so is
    its stdout unless it `talks`: then stdin and stdout are pipes. Raises PerfError if it cannot be run.
    """
    try:
        with open(start.log, "wb") as file:
            return subprocess.Popen(
                [start.python, *words],
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talks else file,
                stderr=file,
                env=dict(start.environment),
                start_new_session=True,
            )
    except OSError as error:
        raise PerfError(f"{start.python}: cannot be run ({error.strerror})") from None


class Server:
    """A server process, from construction until `stop`.

    Attributes:
        port: where it listens.
        log: what it prints.
        pid: of its first process, which leads a session.
    """

    def __init__(self, start: Start) -> None:
        """Starts it, at any free port."""
        self.port = free_port()
        self.log = start.log
        words = ["-m", MODULE, "--host", HOST, "--port", str(self.port), *start.options]
        self._process = started(start, words)
        self.pid = self._process.pid

    def wait(self, most_s: float) -> None:
        """Waits until it answers. Raises PerfError if it ends, with vLLM's reason, or takes too long."""
        end_s = time.monotonic() + most_s
        while time.monotonic() < end_s:
            if not self.is_alive:
                raise PerfError(f"vLLM ended while it started: {self.reason()} ({self.log})")
            if self.ask("/health") is not None:
                return
            time.sleep(POLL_S)
        raise PerfError(f"vLLM did not answer in {most_s:.0f} s; see {self.log}, or give --start-timeout")

    @property
    def is_alive(self) -> bool:
        """Whether the server's first process is running."""
        return self._process.poll() is None

    def ask(self, path: str) -> str | None:
        """Its answer to a request; None without one."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=ASK_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.read().decode(errors="replace") if response.status == 200 else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def preemptions(self) -> float | None:
        """How many requests it has interrupted as its cache was full; None if its metrics do not say."""
        text = self.ask("/metrics") or ""
        found = re.search(r"^vllm:num_preemptions_total(?:{[^}]*})? (\S+)$", text, re.MULTILINE)
        return None if found is None else float(found.group(1))

    def memory_bytes(self) -> int:
        """Resident memory of all its processes; shared memory counts in each of them."""
        total = 0
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError, ValueError, IndexError):
                if os.getsid(int(name)) == self.pid:
                    pages = Path(f"/proc/{name}/statm").read_text(encoding="ascii").split()[1]
                    total += int(pages) * os.sysconf("SC_PAGE_SIZE")
        return total

    def reason(self) -> str:
        """The last error that it printed."""
        return last_error(self.log)

    def stop(self) -> None:
        """Ends all its processes: the first is asked to and ends the others; any left are killed."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


def last_error(log: Path) -> str:
    """The first error line of the last traceback in a vLLM log, otherwise its last line."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.path.getsize(log) - TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError as error:
        return f"no log: {error.strerror}"
    bare = [_LOG_HEAD.sub("", line).strip() for line in lines]
    # the engine's own error comes first; the server's, that its engine has failed, follows
    errors = [line for line in bare if re.match(r"(\w+\.)*\w*(Error|Exception)\b", line)]
    chosen = next((line for line in errors if "See root cause above" not in line), None)
    return chosen or next((line for line in reversed(bare) if line), "it printed nothing")
