"""A vLLM server of one arm, as a child process with children of its own."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flagscale_perf.bench.ports import HOST, free_port
from flagscale_perf.spine.errors import PerfError

STOP_S = 20.0
POLL_S = 0.2
GONE_S = 0.05  # between two looks whether a server is gone
ASK_S = 5.0
TAIL_BYTES = 64 << 10
_LOG_HEAD = re.compile(r"^\([^)]*\)\s*|^(?:ERROR|INFO|WARNING) [\d-]+ [\d:]+ \[[^\]]*\]\s*")


@dataclass(frozen=True)
class Start:
    """How a server is started.

    Attributes:
        options: of vLLM's server.
        environment: of its processes.
        log: file that takes what they print.
        port: None for any that is free.
    """

    options: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    port: int | None = None


class Server:
    """A server process, from construction until `stop`."""

    def __init__(self, start: Start, run: Callable[[list[str], Start], int]) -> None:
        """Starts it. Raises PerfError if the port is taken.

        Args:
            start: how.
            run: starts a server with these options and returns its process id.
        """
        self.port = free_port(start.port, "--vllm-port")
        self.log = start.log
        self._pid = run(["--host", HOST, "--port", str(self.port), *start.options], start)

    def wait(self, most_s: float) -> None:
        """Waits until it answers. Raises PerfError with vLLM's own reason if it ends, or if it does not
        answer in time.
        """
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
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return False
        return True

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
                    if os.getsid(int(name)) == self._pid:
                        found.append(name)
        return found

    def reason(self) -> str:
        """The last error that it printed."""
        return last_error(self.log)

    def stop(self) -> None:
        """Ends all its processes: the first is asked to and ends the others; any left are killed."""
        self._signal(os.kill, signal.SIGTERM)
        self._gone(STOP_S)
        self._signal(os.killpg, signal.SIGKILL)
        self._gone(STOP_S)

    def _signal(self, send: Callable[[int, int], None], number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            send(self._pid, number)

    def _gone(self, most_s: float) -> None:
        """Waits until its first process is gone, but not longer than this."""
        end_s = time.monotonic() + most_s
        while self.is_alive and time.monotonic() < end_s:
            time.sleep(GONE_S)


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
