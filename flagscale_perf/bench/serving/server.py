"""A vLLM server of one arm, as a child process with children of its own."""

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

STOP_S = 20.0
POLL_S = 0.2
ASK_S = 5.0
TAIL_BYTES = 64 << 10
_LOG_HEAD = re.compile(r"^\([^)]*\)\s*|^(?:ERROR|INFO|WARNING) [\d-]+ [\d:]+ \[[^\]]*\]\s*")


@dataclass(frozen=True)
class Start:
    """How a server is started.

    Attributes:
        python: that has vLLM.
        options: of vLLM's server.
        environment: of its processes.
        log: file that takes what they print.
        port: None for any that is free.
    """

    python: str
    options: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    port: int | None = None


class Server:
    """A server process, from construction until `stop`."""

    def __init__(self, start: Start) -> None:
        """Raises PerfError if the port is taken or the program cannot be run."""
        self.port = free_port(start.port, "--vllm-port")
        self.log = start.log
        command = [start.python, "-m", "vllm.entrypoints.openai.api_server", "--host", HOST,
                   "--port", str(self.port), *start.options]  # fmt: skip
        try:
            with open(start.log, "wb") as log:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                    env=dict(start.environment), start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            raise PerfError(f"{start.python}: cannot be run ({error.strerror})") from None

    def wait(self, most_s: float) -> None:
        """Waits until it answers. Raises PerfError with vLLM's own reason if it ends, or if it does not
        answer in time.
        """
        end_s = time.monotonic() + most_s
        while time.monotonic() < end_s:
            if self._process.poll() is not None:
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

    def gauge(self, name: str) -> float | None:
        """A value from its metrics, or from the labels of `cache_config_info`; None if there is none."""
        text = self.ask("/metrics") or ""
        found = re.search(rf"^vllm:{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE) or re.search(
            rf'^vllm:cache_config_info{{.*\b{name}="([\d.]+)"', text, re.MULTILINE
        )
        return None if found is None else float(found.group(1))

    def memory_bytes(self) -> int:
        """Resident memory of all its processes; shared memory counts in each of them."""
        total = 0
        for pid in self._pids():
            with contextlib.suppress(OSError, ValueError, IndexError):
                pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
                total += int(pages) * os.sysconf("SC_PAGE_SIZE")
        return total

    def pids(self) -> set[int]:
        """Its processes."""
        return {int(pid) for pid in self._pids()}

    def _pids(self) -> list[str]:
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    if os.getsid(int(name)) == self._process.pid:
                        found.append(name)
        return found

    def reason(self) -> str:
        """The last error that it printed."""
        return last_error(self.log)

    def stop(self) -> None:
        """Ends all its processes: the first is asked to and ends the others; any left are killed."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def last_error(log: Path) -> str:
    """The first error line of the last traceback in a vLLM log, otherwise its last line."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.path.getsize(log) - TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError as error:
        return f"no log: {error.strerror}"
    bare = [_bare(line) for line in lines]
    # the engine's own error comes first; the server's, that its engine has failed, follows
    errors = [line for line in bare if re.match(r"(\w+\.)*\w*(Error|Exception)\b", line)]
    chosen = next((line for line in errors if "See root cause above" not in line), None)
    return chosen or next((line for line in reversed(bare) if line), "it printed nothing")


def _bare(line: str) -> str:
    while True:
        shorter = _LOG_HEAD.sub("", line, count=1)
        if shorter == line:
            return line.strip()
        line = shorter
