"""Shows a running job: a progress bar on a terminal, the lines of its log elsewhere. Only reads its files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO, TextIO

from flagscale_perf.spine import files
from flagscale_perf.spine.session import REALTIME_FILE
from flagscale_perf.spine.units import printable

_CHUNK_BYTES = 1 << 20
_LONGEST_LINE_BYTES = 1 << 16
_POLL_S = 0.2
_BAR_CHARS = 24
_MARK_CHARS = 3  # of what runs through the bar while the length of the job is not known
_PLAIN_CHARS = 200
# Where there is no terminal: a line after so much of the job, but not within so short a time of the last one,
# and after so long a time in any case.
_PLAIN_SHARE, _PLAIN_SHORTEST_S, _PLAIN_LONGEST_S = 0.1, 5.0, 60.0
_ITERATION = re.compile(r"\biteration\s+(\d+)\s*/\s*(\d+)\b")  # of Megatron's own log line
_NOTICE = re.compile(r"^(?:\[default\d+\]:)?(flagscale_perf: .*)")  # torchrun may put the rank before it
_DOING = re.compile(r"(?:\[default\d+\]:)?[ >]*(\S.*) \.\.\.")  # Megatron, of what takes long
_ROW = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s")
_ROW_OR_REMARK = re.compile("(?:# )?" + _ROW.pattern)
_SHOWN_COLUMNS = {"Samples/s": "samples/s", "Tokens/s": "tokens/s", "Time(ms)": "ms"}


def open_regular(path: str) -> IO[bytes] | None:
    """Opens a regular file for reading; None for anything else, such as a pipe, which could block."""
    try:
        return os.fdopen(files.open_regular(path), "rb")
    except OSError:
        return None


def last_lines(path: str, count: int) -> list[str]:
    """The last whole or unfinished lines, printable; looks at the last 64 KiB only. [] without the file."""
    file = open_regular(path)
    if file is None:
        return []
    with file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _LONGEST_LINE_BYTES))
        text = file.read(_LONGEST_LINE_BYTES).decode(errors="replace")
    return [printable(line) for line in text.splitlines()[-count:]]


class Tail:
    """New lines of a file that another process writes; it may appear late, be emptied, or hold anything."""

    def __init__(self, path: str, is_new_only: bool = False) -> None:
        """`is_new_only`: skips what stands there now."""
        self._path = path
        self._at = os.path.getsize(path) if is_new_only and os.path.isfile(path) else 0
        self._rest = b""

    def lines(self) -> list[str]:
        """Whole lines since the last call, printable. Reads at most 1 MiB; the next call goes on there."""
        file = open_regular(self._path)
        if file is None:
            return []
        with file:
            if os.fstat(file.fileno()).st_size < self._at:
                self._at, self._rest = 0, b""
            file.seek(self._at)
            chunk = file.read(_CHUNK_BYTES)
        self._at += len(chunk)
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        self._rest = self._rest[-_LONGEST_LINE_BYTES:]
        return [printable(line.decode(errors="replace")) for line in whole]


def iteration_of(line: str) -> tuple[int, int] | None:
    """(iteration, of how many) in a line of the host's log, or None."""
    found = _ITERATION.search(line)
    return (int(found[1]), int(found[2])) if found else None


def is_row(line: str, start: datetime | None = None) -> bool:
    """Whether a line of the performance log holds numbers (no heading, no rule); not older ones than `start`,
    in local time.
    """
    found = _ROW.match(line)
    return found is not None and (start is None or found[0].strip() >= f"{start:%Y-%m-%d %H:%M:%S}")


def is_row_or_remark(line: str) -> bool:
    """Whether a line of the performance log holds numbers, or says what happened, and when."""
    return _ROW_OR_REMARK.match(line) is not None


def is_heading(line: str) -> bool:
    """Whether a line of the performance log names its columns."""
    return line.startswith("Timestamp ")


@dataclass
class Progress:
    """How far a job has come.

    Attributes:
        doing: what the job does before its first iteration.
        iteration: last one the host logged; 0 before the first.
        iterations: how many there will be; 0 while that is not known.
        rows: lines of numbers in the performance log since the start.
        row: the last of them.
        rates: what it says, e.g. "12.3 samples/s".
        heading: what its columns are called.
    """

    doing: str = "starting"
    iteration: int = 0
    iterations: int = 0
    rows: int = 0
    row: str = ""
    rates: str = ""
    heading: str = ""
    _columns: list[str] = field(default_factory=list)

    def host_line(self, line: str) -> None:
        """Takes in a line of the job's output."""
        found = iteration_of(line)
        if found:
            self.iteration, self.iterations = found
        elif doing := _DOING.fullmatch(line):
            self.doing = doing[1]

    def perf_line(self, line: str) -> None:
        """Takes in a line of the performance log; its heading says which column is which."""
        words = line.split()
        if is_heading(line):
            self.heading, self._columns = line, words
        elif is_row(line):
            self.rows, self.row = self.rows + 1, line
            values = dict(zip(self._columns[1:], words[2:], strict=False))  # the time stamp is two words
            self.rates = "  ".join(
                f"{values[name]} {unit}" for name, unit in _SHOWN_COLUMNS.items() if name in values
            )

    @property
    def share(self) -> float:
        """The share of the iterations that is done; 0 while their number is not known."""
        return min(1.0, self.iteration / self.iterations) if self.iterations else 0.0

    def bar(self, width: int, elapsed_s: float = 0.0, moves: bool = False) -> str:
        """One line of at most `width` characters, `elapsed_s` after the start. Until the number of iterations
        is known, a mark runs through it if it `moves`.
        """
        filled, count = range(int(self.share * _BAR_CHARS)), f"iteration {self.iteration}/{self.iterations}"
        if not self.iterations:
            count = f"{self.doing}, {elapsed_s:.0f} s" if elapsed_s >= 1 else self.doing
            first = int(elapsed_s / _POLL_S) % _BAR_CHARS
            filled = range(first, first + _MARK_CHARS) if moves else filled
        cells = "".join("#" if cell in filled else "." for cell in range(_BAR_CHARS))
        return f"[{cells}] {count}  {self.rates}".rstrip()[:width]


@dataclass
class Follower:
    """Follows one job; to be made before the job starts, so as to leave out what earlier sessions wrote into
    the live log that all of them share.

    Attributes:
        output: path of the job's output.
        perf_log_dir: directory of the monitor's files.
        screen: where to show it.
        progress: what is known of it.
    """

    output: str
    perf_log_dir: str
    screen: TextIO
    progress: Progress = field(default_factory=Progress)

    def __post_init__(self) -> None:
        """Remembers how long the live log is now."""
        self._output = Tail(self.output)
        self._perf = Tail(os.path.join(self.perf_log_dir, REALTIME_FILE), is_new_only=True)
        self._start_s = time.monotonic()
        self._clear = ""  # erases the lines drawn last
        self._heading = ""  # printed last
        self._said: tuple[float, float] | None = None  # of the last line: when, and share
        self._barred = 0  # iteration of the last bar

    def wait(self, process: subprocess.Popen[bytes]) -> int:
        """Shows the job until it ends. Returns its exit status. KeyboardInterrupt leaves the job running."""
        show = self._draw if self.screen.isatty() else self._print
        try:
            while True:
                ended = process.poll() is not None
                show(*self._news(), ended)
                if ended:
                    return process.returncode
                time.sleep(_POLL_S)
        finally:
            self._write(self._clear)

    def _news(self) -> tuple[list[str], list[str]]:
        """New notices of the monitor, and new lines of its log."""
        notices = []
        for line in self._output.lines():
            self.progress.host_line(line)
            if notice := _NOTICE.match(line):
                notices.append(notice[1])
        perf_lines = self._perf.lines()
        for line in perf_lines:
            self.progress.perf_line(line)
        return notices, perf_lines

    def _print(self, notices: list[str], perf_lines: list[str], ended: bool) -> None:
        """The log's own lines and the notices; the bar's text where these leave a gap."""
        lines: list[str] = []
        for line in filter(is_row_or_remark, perf_lines):
            if is_row(line) and self._heading != self.progress.heading:
                self._heading = self.progress.heading
                lines.append(self._heading)
            lines.append(line)
        lines += notices
        now_s, progress = time.monotonic(), self.progress
        if (ended or not lines) and self._is_due(now_s, ended):
            lines.append(progress.bar(_PLAIN_CHARS, now_s - self._start_s))
            self._barred = progress.iteration
        if lines:
            self._said = now_s, progress.share
            self._write("".join(f"{line}\n" for line in lines))

    def _is_due(self, now_s: float, ended: bool) -> bool:
        if ended:
            return self.progress.iteration > self._barred and not self.progress.rows  # whose last one says it
        if self._said is None:
            return True
        then_s, share = self._said
        since_s = now_s - then_s
        is_far = self.progress.share - share >= _PLAIN_SHARE and since_s >= _PLAIN_SHORTEST_S
        return is_far or since_s >= _PLAIN_LONGEST_S

    def _draw(self, notices: list[str], perf_lines: list[str], ended: bool) -> None:
        """The monitor's notices stay; the last row of its log and the bar below are drawn over and over."""
        width = shutil.get_terminal_size().columns - 1
        staying = "".join(f"{notice}\n" for notice in notices)
        bar = self.progress.bar(width, time.monotonic() - self._start_s, moves=True)
        lines = [*([self.progress.row[:width]] if self.progress.row else []), bar]
        self._write(self._clear + staying + "\n".join(lines))
        self._clear = "\x1b[1A" * (len(lines) - 1) + "\r\x1b[J"

    def _write(self, text: str) -> None:
        self.screen.write(text)
        self.screen.flush()
