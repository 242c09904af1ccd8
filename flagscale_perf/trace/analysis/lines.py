"""Trace lines found in text: whatever stands before and behind them, whoever wrote into the same line.

A line is read by itself: nothing is paired, so that interleaved, repeated and missing lines, calls that share
an id and calls without one all count as what they are. Whole lines of the usual shape are read together, the
others one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MARK = b"[TQ-"
NO_TRACE = b"N/A"
FUNCTION_END = b"stage=FUNCTION_END"
STAGES = {b"stage=GET_END": 0, b"stage=COMPUTE_END": 1, b"stage=PUT_END": 2}
OPERATIONS = {b"stage=TQ_CLIENT_PUT_END": 0, b"stage=TQ_CLIENT_GET_END": 1}  # values of records.Kind
_ENDS = {FUNCTION_END, *STAGES, *OPERATIONS}
_STARTS = {end.replace(b"_END", b"_START") for end in _ENDS}
_STARTED = b" | stage=FUNCTION_START"
_ANSI = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
_REPEATED = re.compile(rb"\s*\[repeated (\d+)x across cluster\].*", re.DOTALL)
_WORKER = re.compile(rb"pid=(\d+)(?:, ip=([^)\s]+))?")
_SHARED = re.compile(rb"\[TQ-[^\n]*\[TQ-")  # several in one line
_FILE_PID = re.compile(r"(?:^tq_trace_|^worker-.*-)(\d+)\.")


class Line(NamedTuple):
    """A line that ends something.

    Attributes:
        stage: `stage=...`, one of those above.
        process: whose it is, as far as that is known.
        trace: id.
        function: empty for an operation of the client.
        fields: name to value of the others.
    """

    stage: bytes
    process: str
    trace: bytes
    function: bytes
    fields: dict[bytes, bytes]


class Group:
    """Usual lines of one function in one process, of one chunk.

    Attributes:
        times: get, compute, put, total, in seconds.
        shares: of get, compute and put, in percent, for each total.
        traces: ids.
        numbers: of the calls in the process; empty where they are not said.
    """

    __slots__ = ("numbers", "shares", "times", "traces")

    def __init__(self) -> None:
        self.times: tuple[list[float], ...] = ([], [], [], [])
        self.shares: list[tuple[float, float, float]] = []
        self.traces: list[bytes] = []
        self.numbers: list[int] = []


Groups = dict[tuple[bytes, bytes, bytes], Group]  # by what stands before the mark, `pid` and `func=...`


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
        """`name` of the file: it may say whose lines these are."""
        match = _FILE_PID.search(name)
        self._own = match[1] if match else ""
        self._workers: dict[bytes, str] = {}
        self.lines = self.torn = self.started = self.repeated = 0
        self.lossy: set[str] = set()

    def read(self, chunks: Iterable[bytes]) -> Iterator[Line | tuple[str, bytes, Group]]:
        """Lines one by one, and of the usual ones groups with their process and function."""
        for chunk in chunks:
            count = chunk.count(MARK)
            if not count:
                continue
            self.lines += count
            self.started += chunk.count(_STARTED)
            lines = chunk.split(b"\n")
            groups: Groups = {}
            if b"[repeated " in chunk or b" | weight=" in chunk or _SHARED.search(chunk):
                rest = [line for line in lines if MARK in line]
            else:
                ends = [line for line in lines if b"_END | " in line]
                self.torn += max(0, count - len(ends) - chunk.count(b"_START"))
                rest = [line for line in ends if not _is_taken(line, groups)]
            for line in rest:
                yield from self._closely(line)
            for (head, pid, function), group in groups.items():
                yield self._process(head, pid), function[len(b"func=") :], group

    def _closely(self, line: bytes) -> Iterator[Line]:
        """A coloured line, one that stands for others, several in one, or one that is cut."""
        before, *found = _ANSI.sub(b"", line).split(MARK)
        for text in found:
            match = _REPEATED.search(text)
            if match:
                self.repeated += int(match[1]) - 1
                self.lossy.add(self._process(before, b""))
                text = text[: match.start()]
            read = self._line(text.rstrip(), before)
            if read is not None:
                yield read

    def _line(self, text: bytes, before: bytes) -> Line | None:
        """What stands behind the mark: fields in any order."""
        kind, _, rest = text.partition(b"] trace_id=")
        trace, *others = rest.split(b" | ")
        stage = next((one for one in others if one in _ENDS), None)
        if kind not in (b"TRACE", b"DETAIL") or (stage in OPERATIONS) != (
            kind == b"DETAIL" and stage is not None
        ):
            self.torn += 1
            return None
        if stage is None:
            self.torn += not any(one in _STARTS for one in others)
            return None
        fields = {name: value for name, _, value in (one.partition(b"=") for one in others)}
        function = fields.get(b"func", b"")
        if kind == b"TRACE" and not function:
            self.torn += 1
            return None
        return Line(stage, self._process(before, fields.get(b"pid", b"")), trace, function, fields)

    def _process(self, before: bytes, pid: bytes) -> str:
        """Whose line it is: as it says itself, as Ray or a logger put it before it, or as the file's name
        has it.
        """
        known = ""
        if b"pid=" in before:
            head = before.partition(b")")[0]
            known = self._workers.get(head, "")
            if not known and (match := _WORKER.search(head)):
                known = match[1].decode() + ("@" + match[2].decode("ascii", "replace") if match[2] else "")
                if len(self._workers) < 1 << 16:
                    self._workers[head] = known
        return known or pid.decode("ascii", "replace") or self._own


def _is_taken(line: bytes, groups: Groups) -> bool:
    """Takes a line of a call into its group if its fields are where they belong, and whole."""
    head, _, rest = line.partition(b"] trace_id=")
    fields = rest.split(b" | ", 7)
    if len(fields) < 4 or head[-9:] != b"[TQ-TRACE" or fields[1][:5] != b"func=":
        return False
    stage, first = fields[2], fields[3]
    at = rest.find(b" | pid=") + 7
    key = head, rest[at : rest.find(b" ", at)] if at > 6 else b"", fields[1]
    group = groups.get(key)
    if group is None:
        group = groups[key] = Group()
    try:
        place = STAGES.get(stage)
        if place is not None and first[:9] == b"duration=" and first[-1:] == b"s":
            group.times[place].append(float(first[9:-1]))
            return True
        if stage != FUNCTION_END or first[:15] != b"total_duration=" or first[-1:] != b"s":
            return False
        if len(fields) < 7 or b" | error=" in rest:
            return False
        total, shares = float(first[15:-1]), _shares(fields)
        at = rest.find(b" | number=") + 10
        if at > 9:
            group.numbers.append(int(rest[at:].partition(b" ")[0]))
    except ValueError:
        return False
    group.times[3].append(total)
    group.shares.append(shares)
    group.traces.append(fields[0])
    return True


def _shares(fields: list[bytes]) -> tuple[float, float, float]:
    """Raises ValueError for fields that are none."""
    get, compute, put = fields[4:7]
    if get[:10] != b"get_ratio=" or compute[:14] != b"compute_ratio=" or put[:10] != b"put_ratio=":
        raise ValueError
    if not get[-1:] == compute[-1:] == put[-1:] == b"%":
        raise ValueError
    return float(get[10:-1]), float(compute[14:-1]), float(put[10:-1])


def seconds(line: Line, name: bytes) -> float | None:
    """Of a field such as `duration=0.060000s`; None where it is missing or cut."""
    value = line.fields.get(name, b"")
    return _number(value[:-1]) if value.endswith(b"s") else None


def share(line: Line, name: bytes) -> float | None:
    """Of a field such as `get_ratio=5.69%`."""
    value = line.fields.get(name, b"")
    percent = _number(value[:-1]) if value.endswith(b"%") else None
    return None if percent is None else percent / 100


def number(line: Line, name: bytes) -> float | None:
    """Of a field such as `throughput_mbps=253.33`."""
    return _number(line.fields.get(name, b""))


def text(line: Line, name: bytes) -> str:
    """Of a field such as `error=ValueError`; empty where it is missing."""
    return line.fields.get(name, b"").decode("utf-8", "replace")


def _number(digits: bytes) -> float | None:
    try:
        value = float(digits)
    except ValueError:
        return None
    return value if 0 <= value < 1e12 else None
