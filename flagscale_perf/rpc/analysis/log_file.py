"""Reads a performance log: ours, and those that other programs write in the same columns."""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, repeat
from pathlib import Path
from typing import Any, NamedTuple

from flagscale_perf.analysis.log_files import HEAD_LINES, LogChunks, lines_of
from flagscale_perf.rpc.analysis.columns import BATCH, Columns
from flagscale_perf.rpc.dtypes import DType
from flagscale_perf.rpc.facts import RpcFacts
from flagscale_perf.rpc.figures import KIB, REQUIRED, TABLE
from flagscale_perf.rpc.log import ABOUT, FORMAT, ONLY, RECEIVE_HAS_WAIT, TITLE
from flagscale_perf.rpc.records import CallRecord, Status
from flagscale_perf.rpc.stages import FIELDS, STAGES
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.units import UNKNOWN
from flagscale_perf.store.run_file import MAX_BAD_LINES, SkippedLine

_END = " \0 "
_STAMP = re.compile(
    rb"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) "
)  # `docker logs -t` has it before each line
_TITLE = re.compile(rf"{TITLE} - Transport: (\S+)")
_FORMAT = re.compile(r"# format (\d+)(?:, session (\S+) of process (\d+))?")
_ABOUT = re.compile(r"# (client|server|probe) at (.*)")
_TITLES = [figure.as_column().title for figure in TABLE.figures]
_STATUS = {each.name: int(each) for each in Status}
_DTYPE = {each.name.lower(): int(each) for each in DType} | {UNKNOWN: 0}
Convert = Callable[[Sequence[str]], Sequence[Any]]


def _numbers(cells: Iterable[str], scale: int) -> list[float]:
    """Raises ValueError for cells that are not finite numbers of 0 or more."""
    values = [number * scale for number in map(float, cells)]
    if values and not (min(values) >= 0 and math.isfinite(sum(values))):
        raise ValueError("not a number of 0 or more")
    return values


def _times(cells: Sequence[str]) -> list[float]:
    return _numbers(cells, NS_PER_MS)


def _known_times(cells: Sequence[str]) -> list[float | None]:
    if UNKNOWN not in cells:
        return [*_times(cells)]
    _times([cell for cell in cells if cell != UNKNOWN])
    return [None if cell == UNKNOWN else float(cell) * NS_PER_MS for cell in cells]


def _sizes(cells: Sequence[str]) -> list[float]:
    return _numbers(cells, KIB)


# Column of the log -> field of CallRecord, and how its cells are read.
_READ: dict[str, tuple[str, Convert]] = {
    "ID": ("number", lambda cells: list(map(int, cells))),
    "Method": ("method", list),
    "Total(ms)": ("total_ns", _times),
    "Sent(KB)": ("sent_bytes", _sizes),
    "Recv(KB)": ("received_bytes", _sizes),
    "Socket(KB)": ("socket_sent_bytes", _sizes),  # both ways; only their sum is used
    "Shared(KB)": ("shared_sent_bytes", _sizes),
    "DType": ("dtype", lambda cells: [_DTYPE[cell] for cell in cells]),
    "Status": ("status", lambda cells: [_STATUS[cell] for cell in cells]),
    **{
        f"{stage.column}(ms)": (field, _known_times if stage.is_told else _times)
        for stage, field in zip(STAGES, FIELDS, strict=True)
    },
}
# a stage that a log lacks is not known; anything else is 0
_ABSENT = dict.fromkeys(FIELDS)


class Part(NamedTuple):
    """Some thousand calls of a log.

    Attributes:
        cells: as they stand there, column by column.
        columns: what they mean.
    """

    cells: list[Sequence[str]]
    columns: Columns


class LogFile:
    """One log, read from start to end in bounded memory; of several sessions in it the last one counts.

    Attributes:
        path: of the file.
        facts: what the log says about its session.
        format: 1 for a log that does not say.
        session: its id; empty for a log that does not say.
        columns: titles of its columns.
        ended: why the session ended; empty where the log does not say.
        calls: rows of the session so far.
        selected: the methods that were logged; empty for all, or where the log does not say.
        skipped, first_skipped: lines between the rows that are no rows, and the first of them.
    """

    def __init__(self, path: Path) -> None:
        """Reads the first line. Raises PerfError if the file is not such a log."""
        self.path = path
        self._reset()
        self.facts = RpcFacts()
        first = next(self._lines(), b"").decode("utf-8", "replace").rstrip("\r\n")
        if not first and not self.skipped:
            raise PerfError(f"{path}:1: the file is empty; no call has been logged")
        if _TITLE.match(first) is None:
            raise PerfError(
                f"{path}:1: a log of calls begins with its title, '{TITLE} - Transport: ...', but line 1 is"
                f" {first[:60]!r}; remove what stands above the title"
            )

    def _reset(self) -> None:
        self.format, self.session, self.ended = 1, "", ""
        self.columns: list[str] = []
        self.selected: list[str] = []
        self.calls = self.skipped = 0
        self.first_skipped: list[SkippedLine] = []
        self._doubtful: list[SkippedLine] = []  # no rows: bad if a row follows, else the log's foot
        self._doubtful_count = 0
        self._has_rows = False
        self._readers: list[tuple[str, int, Convert]] = []

    def parts(self, begin: Callable[[], None]) -> Iterator[Part]:
        """The calls; `begin` is called at the start of each session, the first one included. Raises
        PerfError.
        """
        self._reset()
        number, size, read = 0, HEAD_LINES, self._lines()  # the head apart, as it is looked at line by line
        while lines := list(islice(read, size)):
            size = BATCH
            part = self._quickly(lines)
            if part is not None:
                yield part
            else:
                yield from self._closely(lines, number, begin)
            number += len(lines)
        self._readers = []  # no longer needed, and functions cannot be kept
        if not self.columns:
            raise PerfError(f"{self.path}:3: the line with the names of the columns is missing")

    def _lines(self) -> Iterator[bytes]:
        """The lines, without stamps and byte order marks: each of several logs in a row may have its own.
        Raises PerfError for a file that cannot be read at all.
        """
        log, number, is_stamped = LogChunks(self.path), 0, False
        for number, line in enumerate(lines_of(log), 1):
            if number == 1:
                is_stamped = _STAMP.match(line) is not None
            plain = _STAMP.sub(b"", line, 1) if is_stamped else line
            yield plain.removeprefix(codecs.BOM_UTF8)
        if log.trouble:
            self._skip([SkippedLine(number + 1, f"cannot be read from here on: {log.trouble}")], 1)

    def _quickly(self, lines: list[bytes]) -> Part | None:
        """Parses lines that are all valid rows; None if they are not."""
        if not self.columns or self._doubtful_count or not lines[-1].endswith(b"\n"):
            return None
        # All cells at once, and one behind each row's last that shows where it ends.
        width = len(self.columns) + 1
        text = b"".join(lines).decode("utf-8", "replace")
        cells = text.replace("\n", _END).split()
        if len(cells) != width * len(lines) or {*cells[width - 1 :: width]} != {_END.strip()}:
            return None
        try:
            return self._part([cells[place::width] for place in range(width - 1)])
        except (ValueError, KeyError):
            return None

    def _closely(self, lines: list[bytes], before: int, begin: Callable[[], None]) -> Iterator[Part]:
        """Parses line by line; rows before another session's heading are separate from those after it."""
        good: list[list[str]] = []
        for number, line in enumerate(lines, before + 1):
            text = line.decode("utf-8", "replace").rstrip("\n")
            if _TITLE.match(text):
                if good:
                    yield self._part(list(zip(*good, strict=True)))
                good = []
                self._begin(text)
                begin()
            elif text[:1].isdigit():
                row = self._row(text, number, line.endswith(b"\n"))
                if row is not None:
                    good.append(row)
            else:
                self._other(text, number)
        if good:
            yield self._part(list(zip(*good, strict=True)))

    def _begin(self, first: str) -> None:
        skipped, first_skipped = self.skipped, self.first_skipped
        self._reset()
        self.skipped, self.first_skipped = skipped, first_skipped
        match = _TITLE.match(first)
        self.facts = RpcFacts(transport=match[1] if match else "", receive_has_wait=True)

    def _row(self, text: str, number: int, is_whole: bool) -> list[str] | None:
        cells = text.split()
        reason = self._wrong(cells) if is_whole else "cut off"
        if reason:
            self._skip([SkippedLine(number, reason)], 1)
            return None
        self._skip(self._doubtful, self._doubtful_count)
        self._doubtful, self._doubtful_count, self._has_rows = [], 0, True
        return cells

    def _wrong(self, cells: list[str]) -> str:
        if not self.columns:
            return "a row above the names of the columns"
        if len(cells) != len(self.columns):
            return f"{len(cells)} values, not {len(self.columns)}"
        for name, place, convert in self._readers:
            try:
                convert([cells[place]])
            except (ValueError, KeyError):
                return f"{cells[place][:40]!r} is no {name.removesuffix('_ns').replace('_', ' ')}"
        return ""

    def _skip(self, lines: Sequence[SkippedLine], count: int) -> None:
        self.skipped += count
        self.first_skipped += lines[: MAX_BAD_LINES - len(self.first_skipped)]

    def _other(self, text: str, number: int) -> None:
        if text.startswith("#"):
            self._remark(text, number)
        elif not self._has_rows and text.startswith("ID "):
            self._head(text, number)
        elif text.startswith("Ended: "):
            self.ended = text.removeprefix("Ended: ")
        elif text.strip("=- ") and self._has_rows:
            self._doubtful_count += 1
            if len(self._doubtful) < MAX_BAD_LINES:
                self._doubtful.append(SkippedLine(number, "between the rows, and no row"))

    def _head(self, text: str, number: int) -> None:
        titles = text.split()
        missing = [title for title in _TITLES[:REQUIRED] if title not in titles]
        if missing:
            raise PerfError(f"{self.path}:{number}: there is no column {', '.join(missing)}")
        self.columns = titles
        self._readers = [
            (_READ[title][0], place, _READ[title][1]) for place, title in enumerate(titles) if title in _READ
        ]
        self.facts = RpcFacts(transport=self.facts.transport, receive_has_wait="Wait(ms)" not in titles)

    def _remark(self, text: str, number: int) -> None:
        if match := _FORMAT.match(text):
            self.format, self.session = int(match[1]), match[2] or ""
            if self.format > FORMAT:
                reason = f"format {self.format} is newer than {FORMAT}: update flagscale_perf"
                self._skip([SkippedLine(number, reason)], 1)
        elif match := _ABOUT.match(text):
            self.facts = _facts(self.facts, match[1], match[2])
        elif text.startswith(ONLY):
            self.selected = text.removeprefix(ONLY).split(", ")
        elif text == RECEIVE_HAS_WAIT:
            self.facts = replace(self.facts, receive_has_wait=True)

    def _part(self, cells: list[Sequence[str]]) -> Part:
        """Raises ValueError or KeyError for invalid cells."""
        columns: Columns = {name: convert(cells[place]) for name, place, convert in self._readers}
        for name in CallRecord._fields:
            if name not in columns:
                columns[name] = list(repeat(_ABSENT.get(name, 0), len(cells[0])))
        self.calls += len(cells[0])
        return Part(cells, columns)


def _facts(facts: RpcFacts, role: str, text: str) -> RpcFacts:
    endpoint, *known = text.split(", ")
    about = dict(each.partition(" ")[::2] for each in known)
    said: dict[str, Any] = {name: about.get(name) for name in ABOUT}
    return replace(facts, role=role, endpoint=endpoint, **said)
