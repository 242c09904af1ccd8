"""Shows a running job: a progress bar on a terminal, plain lines elsewhere. Only reads the job's files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import TextIO

from flagscale_perf.launcher.tail import Tail, size_of
from flagscale_perf.spine.session import REALTIME_FILE

_POLL_S = 0.2
_BAR_CHARS = 24
_PLAIN_CHARS = 200
_ITERATION = re.compile(r"\biteration\s+(\d+)\s*/\s*(\d+)\b")  # of Megatron's own log line
_NOTICE = re.compile(r"^(?:\[default\d+\]:)?(flagscale_perf: .*)")  # torchrun may put the rank before it
_ROW = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s")
_SHOWN_COLUMNS = {"Samples/s": "samples/s", "Tokens/s": "tokens/s", "Time(ms)": "ms"}


def iteration_of(line: str) -> tuple[int, int] | None:
    """(iteration, of how many) in a line of the host's log, or None."""
    found = _ITERATION.search(line)
    return (int(found[1]), int(found[2])) if found else None


def is_row(line: str) -> bool:
    """Whether a line of the performance log holds numbers (not a heading or a rule)."""
    return _ROW.match(line) is not None


def is_row_since(line: str, start: datetime | None) -> bool:
    """Whether it is a row of a job that was started then, local time; any row without a time."""
    found = _ROW.match(line)
    if found is None or start is None:
        return found is not None
    return found[0].strip() >= f"{start:%Y-%m-%d %H:%M:%S}"


@dataclass
class Progress:
    """What is known of a job so far.

    Attributes:
        iteration: last one the host logged; 0 before the first.
        iterations: how many there will be; 0 while that is not known.
        rows: lines of numbers in the performance log since the start.
        row: the last of them.
        rates: what it says, e.g. "12.3 samples/s".
    """

    iteration: int = 0
    iterations: int = 0
    rows: int = 0
    row: str = ""
    rates: str = ""
    _columns: list[str] = field(default_factory=list)

    def host_line(self, line: str) -> None:
        """Takes in a line of the job's output."""
        found = iteration_of(line)
        if found:
            self.iteration, self.iterations = found

    def perf_line(self, line: str) -> None:
        """Takes in a line of the performance log; its heading says which column is which."""
        words = line.split()
        if "Step" in words:
            self._columns = words
        elif is_row(line):
            self.rows, self.row = self.rows + 1, line
            values = dict(zip(self._columns[1:], words[2:], strict=False))  # the time stamp is two words
            self.rates = "  ".join(
                f"{values[name]} {unit}" for name, unit in _SHOWN_COLUMNS.items() if name in values
            )

    def bar(self, width: int) -> str:
        """One line of at most `width` characters."""
        share = self.iteration / self.iterations if self.iterations else 0.0
        done = min(_BAR_CHARS, int(share * _BAR_CHARS))
        count = f"iteration {self.iteration}/{self.iterations}" if self.iterations else "starting"
        return f"[{'#' * done}{'.' * (_BAR_CHARS - done)}] {count}  {self.rates}".rstrip()[:width]


@dataclass
class Follower:
    """Follows one job; to be made before the job starts, so as to leave out what earlier sessions wrote into
    the live log that all of them share.

    Attributes:
        output: path of the job's output.
        perf_log_dir: directory of the monitor's files.
        screen: where to show it.
    """

    output: str
    perf_log_dir: str
    screen: TextIO
    progress: Progress = field(default_factory=Progress)

    def __post_init__(self) -> None:
        """Remembers how long the live log is now."""
        realtime = os.path.join(self.perf_log_dir, REALTIME_FILE)
        self._output = Tail(self.output, 0)
        self._perf = Tail(realtime, size_of(realtime))
        self._clear = ""  # erases the lines drawn last

    def wait(self, process: subprocess.Popen[bytes]) -> int:
        """Shows the job until it ends. Returns its exit status. KeyboardInterrupt leaves the job running."""
        show = self._draw if self.screen.isatty() else self._print
        try:
            while True:
                ended = process.poll() is not None
                show(*self._news())
                if ended:
                    return process.returncode
                time.sleep(_POLL_S)
        finally:
            self._write(self._clear)

    def _news(self) -> tuple[bool, list[str], list[str]]:
        """What is new: whether the host logged an iteration, the monitor's notices, its log's lines."""
        before = self.progress.iteration
        notices = []
        for line in self._output.lines():
            self.progress.host_line(line)
            if notice := _NOTICE.match(line):
                notices.append(notice[1])
        perf_lines = self._perf.lines()
        for line in perf_lines:
            self.progress.perf_line(line)
        return self.progress.iteration != before, notices, perf_lines

    def _print(self, is_new: bool, notices: list[str], perf_lines: list[str]) -> None:
        """Plain lines; the bar's text only until the performance log has its first row."""
        text = "".join(f"{line}\n" for line in [*notices, *perf_lines])
        if is_new and not self.progress.rows:
            text += self.progress.bar(_PLAIN_CHARS) + "\n"
        self._write(text)

    def _draw(self, is_new: bool, notices: list[str], perf_lines: list[str]) -> None:
        """The monitor's notices stay; the last row of its log and the bar below are drawn over and over."""
        width = shutil.get_terminal_size().columns - 1
        staying = "".join(f"{notice}\n" for notice in notices)
        lines = [*([self.progress.row[:width]] if self.progress.row else []), self.progress.bar(width)]
        self._write(self._clear + staying + "\n".join(lines))
        self._clear = "\x1b[1A" * (len(lines) - 1) + "\r\x1b[J"

    def _write(self, text: str) -> None:
        self.screen.write(text)
        self.screen.flush()
