"""Tells somebody: starts a command with a finding as JSON on its standard input, on a thread of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

from flagscale_perf.spine.clock import NS_PER_S, Anchor, monotonic_ns
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.language import live
from flagscale_perf.spine.live import ENDS, FindingRecord
from flagscale_perf.writer import limited

OPTION = "--perf-on-finding"
QUIET_NS = 600 * NS_PER_S  # until the same is told again
LIMIT_S = 60.0  # that a command may take
END_S = 1.0  # at the end, so that what a short command says is in the run file
MOST = 20  # commands in QUIET_NS: with a thousand late ranks nobody reads the twenty-first message
_LOOK_S = 0.01


class Gate:
    """Lets a finding's beginning, worsening and end through once in `QUIET_NS`. What came in between is told
    then, if it still holds.
    """

    def __init__(self) -> None:
        self._told_ns: dict[tuple[str, str, str], int] = {}
        self._state: dict[tuple[str, str], str] = {}  # as last told
        self._held: dict[tuple[str, str], FindingRecord] = {}

    def admit(self, finding: FindingRecord, now_ns: int) -> bool:
        """Whether it is to be told now. The end of what was not told is not worth a word."""
        key = finding.identity
        self._held.pop(key, None)
        if finding.state == ENDS and self._state.get(key, ENDS) == ENDS:
            return False
        told_ns = self._told_ns.get((*key, finding.state))
        if told_ns is not None and now_ns - told_ns < QUIET_NS:
            self._held[key] = finding
            return False
        self.told(finding, now_ns)
        return True

    def told(self, finding: FindingRecord, now_ns: int) -> None:
        """It was told, by this writer or by the one before it."""
        self._told_ns[(*finding.identity, finding.state)] = now_ns
        self._state[finding.identity] = finding.state

    def due(self, now_ns: int) -> list[FindingRecord]:
        """What was held back and may be told now."""
        return [each for each in list(self._held.values()) if self.admit(each, now_ns)]


class Notifier:
    """One command at a time. No method but `close` blocks; what fails is kept for the run file."""

    def __init__(self, words: Sequence[str], directory: str, anchor: Anchor) -> None:
        """`words`: the command and its arguments, none where nobody is to be told; `directory`: of the run's
        files; `anchor`: of its clocks.
        """
        self._words, self._anchor = words, anchor
        self._more = {"host": os.uname().nodename, "directory": directory}
        self._session_id: str | None = None
        self._gate = Gate()
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._started_ns: deque[int] = deque(maxlen=MOST)
        self._failures: deque[str] = deque(maxlen=MOST)
        self._not_told = self._given = 0
        self._done = 0  # commands; written by the thread alone
        self._is_on = bool(words)
        if words:
            self._begin()

    def _begin(self) -> None:
        try:
            threading.Thread(target=self._run, name="flagscale_perf notify", daemon=True).start()
        except RuntimeError as error:
            self._stop(str(error))

    def _stop(self, why: str) -> None:
        self._is_on = False
        self._failures.append(f"{OPTION}: {why}; nobody is told of findings")

    def resume(self, session_id: str, told: Iterable[FindingRecord]) -> None:
        """The session is there; an earlier writer has told these."""
        self._session_id = session_id
        for finding in told:
            self._gate.told(finding, finding.at_ns)

    def tell(self, finding: FindingRecord) -> None:
        """Starts the command with it, unless the same was told a moment ago."""
        if self._gate.admit(finding, monotonic_ns()):
            self._put(finding)

    def look(self) -> list[str]:
        """Tells what was held back and is due. Returns what has failed since the last call, a line each."""
        for finding in self._gate.due(monotonic_ns()):
            self._put(finding)
        return [self._failures.popleft() for _ in range(len(self._failures))]

    @property
    def is_busy(self) -> bool:
        """Whether a command runs or waits."""
        return self._done < self._given

    def close(self) -> None:
        """Waits `END_S` at most for commands to end; starts those that have waited, and waits no more."""
        until = time.monotonic() + END_S
        while self._is_on and self.is_busy and time.monotonic() < until:
            time.sleep(_LOOK_S)
        is_on, self._is_on = self._is_on, False
        with suppress(Empty, OSError):
            while is_on and (content := self._queue.get_nowait()) is not None:
                self._command(content, subprocess.DEVNULL)
        self._queue.put(None)

    def _put(self, finding: FindingRecord) -> None:
        now_ns = monotonic_ns()
        if not self._is_on:
            return
        if len(self._started_ns) == MOST and now_ns - self._started_ns[0] < QUIET_NS:
            self._not_told += 1
            return
        self._started_ns.append(now_ns)
        more = {"text": live(finding.text), **self._more, "not_told": self._not_told}
        self._not_told = 0
        self._given += 1
        self._queue.put((dump(finding.told(self._session_id, self._anchor) | more) + "\n").encode())

    def _run(self) -> None:
        if shutil.which(self._words[0]) is None:  # asked here, as a disk may not answer
            self._stop(f"there is no command {self._words[0]!r} on {self._more['host']}")
            self._done = self._given
        while self._is_on and (content := self._queue.get()) is not None:
            try:
                trouble = self._follow(content)
            except Exception as error:  # whatever it is: the next finding may be told again
                trouble = f"{type(error).__name__}: {error}"
            if trouble:
                self._failures.append(f"{OPTION} {self._words[0]}: {trouble}")
            self._done += 1

    def _command(self, content: bytes, stderr: int) -> subprocess.Popen[bytes]:
        """A process that limits the command, of a process session of its own. Raises OSError."""
        with open(os.memfd_create("flagscale_perf_finding"), "w+b", buffering=0) as given:
            given.write(content)
            given.seek(0)
            return subprocess.Popen(
                [sys.executable, "-I", limited.__file__, f"{LIMIT_S:g}", *self._words],
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )

    def _follow(self, content: bytes) -> str:
        """One command from start to end; returns how it failed, "" if it did not."""
        process = self._command(content, subprocess.PIPE)
        _, said = process.communicate()
        words = said.decode("utf-8", "replace")
        return f"ended with code {process.returncode}: {words}".rstrip(": ") if process.returncode else ""
