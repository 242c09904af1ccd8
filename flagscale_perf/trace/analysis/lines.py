"""Finds trace lines in text, whatever else is written before and after them on the same line.

A line is read by itself: nothing is paired, so that interleaved, repeated and missing lines, calls that share
an id and calls without one all count as what they are. What the lines of a text say is handed on in columns,
one for all lines that differ in their figures only.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import NamedTuple

from flagscale_perf.trace.figures import MIB
from flagscale_perf.trace.records import Kind

_MARK, _CALL_END = "[TQ-", "FUNCTION_END"
_STAGES = {"GET_END": 0, "COMPUTE_END": 1, "PUT_END": 2}
_OPERATIONS = {f"TQ_CLIENT_{kind.name}_END": kind for kind in Kind}
_ENDS = dict.fromkeys((_CALL_END, *_STAGES), "TRACE") | dict.fromkeys(_OPERATIONS, "DETAIL")
_WAITS = {"TQ_CLIENT_WAIT_START", "TQ_CLIENT_WAIT_END"}  # have no figures that are summed up
_BEGUN = _WAITS | {end.replace("_END", "_START") for end in _ENDS}
_EQUALS = repeat("=")
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_REPEATED = re.compile(r"\s*\[repeated (\d{1,9})x across cluster\].*", re.DOTALL)
_WORKER = re.compile(r"pid=(\d+)(?:, ip=([^)\s]+))?", re.ASCII)
_FILE_PID = re.compile(r"(?:^tq_trace_|^worker-.*-)(\d+)\.")
_MAX_WORKERS = 1 << 16
# Lines as our own tracer writes them: one search for all that they say. No value has a bracket, an escape or
# a blank, so that nothing in them is a second mark, a colour, Ray's note or left out at the end; all others
# are read field by field.
_WORD = r"[^ |\[\x1b\n]*+"
_BEGUN_AT = r"(?: \| timestamp=[^\[\x1b\n]*+)?+"
_ERROR = rf"(?: \| status=error)?+(?: \| error=({_WORD}))?+"
_TAIL = (
    r"(?: \| timestamp=[\d.]++)?+(?: \| pid=(\d++))?+(?: \| number=(\d{1,11}+))?+(?: \| weight=([\d.]++))?+"
    r"(?: \| step=\d++)?+"
)
_PATTERN = (
    rf"\[TQ-(?:TRACE\] trace_id=({_WORD}) \| func=(?! )({_WORD}) \| stage="
    rf"(?:(FUNCTION|GET|COMPUTE|PUT)_START{_BEGUN_AT}"
    r"|(?:(GET_END|COMPUTE_END|PUT_END) \| |FUNCTION_END \| total_)duration=(\d{1,11}\.\d+)s"
    r"(?: \| get_ratio=(\d{1,5}\.\d+)% \| compute_ratio=(\d{1,5}\.\d+)% \| put_ratio=(\d{1,5}\.\d+)%)?+"
    rf"{_ERROR}{_TAIL})$"
    rf"|DETAIL\] trace_id={_WORD} \| stage=(?:TQ_CLIENT_(PUT|GET|WAIT)_START{_BEGUN_AT}"
    r"|(TQ_CLIENT_(?:PUT|GET)_END) \| duration=(\d{1,11}\.\d+)s"
    rf"(?: \| throughput_mbps=(\d{{1,9}}\.\d+))?+{_ERROR}(?: \| batch_size=(\d{{1,11}}+))?+"
    r"(?: \| fields=(\d{1,11}+))?+(?: \| data_size_mb=(\d{1,9}\.\d+))?+"
    rf"{_TAIL}(?: \| partition={_WORD})?+)$"
    r"|(.*))"
)
if sys.version_info < (3, 11):  # has no possessive quantifiers; without, no line matches otherwise, either
    _PATTERN = re.sub(r"([*+?}])\+", r"\1", _PATTERN)
_LINES = re.compile(_PATTERN, re.ASCII | re.MULTILINE).finditer
_BEGINS, _BEGINS_DETAIL, _OTHER = 3, 13, 24  # the last group where a stage begins, and of all other lines


class Stages(NamedTuple):
    """Ends of one stage of calls.

    Attributes:
        process: whose they are, as far as that is known.
        function: of the calls.
        weight: how many each stands for.
        stage: 0, 1 and 2 for get, compute and put.
        seconds: of each.
    """

    process: str
    function: str
    weight: float
    stage: int
    seconds: list[float]


class Calls(NamedTuple):
    """Ends of calls.

    Attributes:
        process, function, weight, seconds: as of stages.
        error: name of what they failed with; empty where they did not.
        shares: get, compute and put of each call, in percent of it; None where they are not said.
        traces: id of each.
        numbers: of the calls in their process, as far as they are said.
    """

    process: str
    function: str
    weight: float
    error: str
    seconds: list[float]
    shares: list[tuple[float, float, float] | None]
    traces: list[str]
    numbers: list[int]


class Operations(NamedTuple):
    """Ends of the client's operations.

    Attributes:
        process, weight, error, seconds, numbers: as of calls.
        kind: of all of them.
        sizes: bytes of each; None where they are not known.
        rows, fields: the same.
    """

    process: str
    kind: Kind
    weight: float
    error: str
    seconds: list[float]
    sizes: list[float | None]
    rows: list[float | None]
    fields: list[float | None]
    numbers: list[int]


Column = Stages | Calls | Operations
_Fields = dict[str, str]
_Key = tuple[str, ...]  # stage, process, function, weight, error


class TraceLines:
    """The trace lines of one text.

    Attributes:
        lines: trace lines that were read.
        torn: those that were cut, or written into by another process.
        started: calls that began.
        repeated: lines that Ray left out as repetitions; one of each repetition is there.
        lossy: processes whose lines Ray left out, as far as it says.
    """

    def __init__(self, name: str = "") -> None:
        """`name`: of the file, which may tell whose lines these are."""
        match = _FILE_PID.search(name)
        self._own = match[1] if match else ""
        self._workers: dict[str, str] = {}
        self._likes: dict[tuple[str, ...], Column] = {}  # of lines that differ in their figures only
        self._columns: dict[_Key, Column] = {}
        self.lines = self.torn = self.started = self.repeated = 0
        self.lossy: set[str] = set()

    def read(self, chunks: Iterable[bytes]) -> Iterator[Column]:
        """The ends that the lines report: of stages, of calls and of the client's operations."""
        for chunk in chunks:
            text = chunk.decode("utf-8", "replace")
            for found in _LINES(text):
                last = found.lastindex or 0
                if last in (_BEGINS, _BEGINS_DETAIL):
                    self.lines += 1
                    self.started += found[_BEGINS] == "FUNCTION"
                    continue
                at = found.start()
                before = text[text.rfind("\n", 0, at) + 1 : at]
                if last == _OTHER:
                    for part in found[_OTHER].split(_MARK):
                        self._read(part, before)
                elif last < _BEGINS_DETAIL:
                    self._usual_call(found, before)
                else:
                    self._usual_operation(found, before)
            yield from self._columns.values()
            self._columns, self._likes = {}, {}

    def _usual_call(self, found: re.Match[str], before: str) -> None:
        """Takes what `_end` takes of the same line."""
        known = found.groups("")[: _BEGINS_DETAIL - 1]
        trace, function, _, stage, took, get, compute, put, error, pid, number, weight = known
        column = self._like(before, pid, stage or _CALL_END, function, weight, error)
        column.seconds.append(float(took))
        if isinstance(column, Calls):
            if number:
                column.numbers.append(int(number))
            column.shares.append((float(get), float(compute), float(put)) if get else None)
            column.traces.append(trace)

    def _usual_operation(self, found: re.Match[str], before: str) -> None:
        """The same of an operation."""
        stage, time, speed, error, rows, fields, size, pid, number, weight = found.groups("")[
            _BEGINS_DETAIL:-1
        ]
        column, took = self._like(before, pid, stage, "", weight, error), float(time)
        if isinstance(column, Operations):
            column.seconds.append(took)
            if number:
                column.numbers.append(int(number))
            size_mib = float(size) if size else float(speed) * took if speed else None
            column.sizes.append(None if size_mib is None else size_mib * MIB)
            column.rows.append(float(rows) if rows else None)
            column.fields.append(float(fields) if fields else None)

    def _like(self, before: str, pid: str, stage: str, *others: str) -> Column:
        """The column of a line that begins so; most look it up once a chunk."""
        self.lines += 1
        like = before, pid, stage, *others
        column = self._likes.get(like)
        if column is None:
            column = self._likes[like] = self._column(stage, self._process(before, pid), *others)
        return column

    def _column(self, *key: str) -> Column:
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = _column(key)
        return column

    def _read(self, text: str, before: str) -> None:
        """Reads what is behind a mark: fields in any order."""
        self.lines += 1
        if "\x1b" in text:
            text = _ANSI.sub("", text)
        if "[repeated " in text and (match := _REPEATED.search(text)):
            self.repeated += int(match[1]) - 1
            self.lossy.add(self._process(before, ""))
            text = text[: match.start()]
        kind, _, rest = text.rstrip().partition("] trace_id=")
        stage = rest.partition(" | stage=")[2].partition(" | ")[0]
        if stage in _BEGUN and kind in ("TRACE", "DETAIL"):
            self.started += stage == "FUNCTION_START"
        elif _ENDS.get(stage) != kind or not self._end(stage, rest, before):
            self.torn += 1

    def _end(self, stage: str, rest: str, before: str) -> bool:
        """Whether the line is whole."""
        trace, *others = rest.split(" | ")
        fields = {name: value for name, _, value in map(str.partition, others, _EQUALS)}
        function, weight, error = fields.get("func", ""), fields.get("weight", ""), fields.get("error", "")
        took = _figure(fields.get("total_duration" if stage == _CALL_END else "duration", ""), "s")
        if took is None or not (function or stage in _OPERATIONS):
            return False
        process = self._process(before, fields.get("pid", ""))
        column = self._column(stage, process, function, weight, error)
        column.seconds.append(took)
        if isinstance(column, Stages):
            return True
        if (number := _figure(fields.get("number", ""))) is not None:
            column.numbers.append(int(number))
        if isinstance(column, Calls):
            column.shares.append(_shares(fields))
            column.traces.append(trace)
        else:
            column.sizes.append(_size(fields, took))
            column.rows.append(_figure(fields.get("batch_size", "")))
            column.fields.append(_figure(fields.get("fields", "")))
        return True

    def _process(self, before: str, pid: str) -> str:
        """The process that wrote the line: as Ray or a logger put before it, as the line itself says, or as
        in the file's name.
        """
        known = ""
        if "pid=" in before:
            head = before.partition(")")[0]
            known = self._workers.get(head, "")
            if not known and (match := _WORKER.search(_ANSI.sub("", head))):
                known = match[1] + ("@" + match[2] if match[2] else "")
                if len(self._workers) < _MAX_WORKERS:
                    self._workers[head] = known
        return known or pid or self._own


def _column(key: _Key) -> Column:
    stage, process, function, weight_text, error = key
    weight = _figure(weight_text) or 1.0
    if stage in _STAGES:
        return Stages(process, function, weight, _STAGES[stage], [])
    if stage in _OPERATIONS:
        return Operations(process, _OPERATIONS[stage], weight, error, [], [], [], [], [])
    return Calls(process, function, weight, error, [], [], [], [])


def _shares(fields: _Fields) -> tuple[float, float, float] | None:
    get = _figure(fields.get("get_ratio", ""), "%")
    compute = _figure(fields.get("compute_ratio", ""), "%")
    put = _figure(fields.get("put_ratio", ""), "%")
    return None if get is None or compute is None or put is None else (get, compute, put)


def _size(fields: _Fields, took: float) -> float | None:
    """Bytes; None where not all are known."""
    size_mib = _figure(fields.get("data_size_mb", ""))
    if size_mib is None and (speed_mib := _figure(fields.get("throughput_mbps", ""))) is not None:
        size_mib = speed_mib * took
    return None if size_mib is None or "unsized" in fields else size_mib * MIB


def _figure(text: str, unit: str = "") -> float | None:
    """A figure such as `0.060000s`; None if it is missing or cut."""
    if not text.endswith(unit) or not text.isascii():
        return None
    try:
        value = float(text[:-1] if unit else text)
    except ValueError:
        return None
    return value if 0 <= value < 1e12 else None
