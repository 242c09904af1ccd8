"""Finds trace lines in text, whatever else is written before and after them on the same line.

A line is read by itself: nothing is paired, so that interleaved, repeated and missing lines, calls that share
an id and calls without one all count as what they are. Lines of the usual shape are parsed many at a time
(`columns`), every other one by itself, with the same result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from flagscale_perf.trace.analysis.columns import (
    MARK,
    MIB,
    Calls,
    Column,
    Operations,
    Stages,
    columns_of,
)

_FUNCTION_END = b"stage=FUNCTION_END"
_STAGES = {b"stage=GET_END": 0, b"stage=COMPUTE_END": 1, b"stage=PUT_END": 2}
_OPERATIONS = {b"stage=TQ_CLIENT_PUT_END": 0, b"stage=TQ_CLIENT_GET_END": 1}  # values of records.Kind
_ENDS = {_FUNCTION_END, *_STAGES, *_OPERATIONS}
_STARTED = b"FUNCTION_START"
_WAITS = {b"TQ_CLIENT_WAIT_START", b"TQ_CLIENT_WAIT_END"}  # have no figures that are summed up
_STARTS = _WAITS | {end.removeprefix(b"stage=").replace(b"_END", b"_START") for end in _ENDS}
_ANSI = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
_REPEATED = re.compile(rb"\s*\[repeated (\d{1,9})x across cluster\].*", re.DOTALL)
_WORKER = re.compile(rb"pid=(\d+)(?:, ip=([^)\s]+))?")
_FILE_PID = re.compile(r"(?:^tq_trace_|^worker-.*-)(\d+)\.")
_MAX_WORKERS = 1 << 16


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
        self._workers: dict[bytes, str] = {}
        self.lines = self.torn = self.started = self.repeated = 0
        self.lossy: set[str] = set()

    def read(self, chunks: Iterable[bytes]) -> Iterator[Column]:
        """The ends that the lines report: of stages, of calls and of the client's operations."""
        for chunk in chunks:
            found = columns_of(chunk, self._process)
            self.lines += found.lines + found.rest.count(MARK)
            self.started += found.started[_STARTED]
            self.torn += sum(count for stage, count in found.started.items() if stage not in _STARTS)
            yield from found.columns
            if found.rest:
                yield from self._close(found.rest.split(b"\n"))

    def _close(self, lines: Iterable[bytes]) -> Iterator[Column]:
        """Parses a coloured line, one that stands for others, several in one, or a cut one."""
        for line in lines:
            before, *found = _ANSI.sub(b"", line).split(MARK)
            for text in found:
                match = _REPEATED.search(text)
                if match:
                    self.repeated += int(match[1]) - 1
                    self.lossy.add(self._process(before, b""))
                    text = text[: match.start()]
                yield from self._line(text.rstrip(), before)

    def _line(self, text: bytes, before: bytes) -> Iterator[Column]:
        """Parses the text after the mark: fields in any order."""
        kind, _, rest = text.partition(b"] trace_id=")
        trace, *others = rest.split(b" | ")
        stage = next((one for one in others if one in _ENDS), None)
        fields = {name: value for name, _, value in (one.partition(b"=") for one in others)}
        if stage is None and kind in (b"TRACE", b"DETAIL") and fields.get(b"stage") in _STARTS:
            self.started += fields[b"stage"] == _STARTED
            return
        column: Column | None = None
        if stage is not None and (stage in _OPERATIONS) == (kind == b"DETAIL"):
            process = self._process(before, fields.get(b"pid", b""))
            if kind == b"DETAIL":
                column = _operation(_OPERATIONS[stage], process, fields)
            elif kind == b"TRACE" and fields.get(b"func"):
                column = _of_call(stage, process, trace, fields)
        if column is None:
            self.torn += 1
        else:
            yield column

    def _process(self, before: bytes, pid: bytes) -> str:
        """The process that wrote the line: as the line itself says, as Ray or a logger put before it, or as
        in the file's name.
        """
        known = ""
        if b"pid=" in before:
            head = before.partition(b")")[0]
            known = self._workers.get(head, "")
            if not known and (match := _WORKER.search(head)):
                known = match[1].decode() + ("@" + match[2].decode("ascii", "replace") if match[2] else "")
                if len(self._workers) < _MAX_WORKERS:
                    self._workers[head] = known
        return known or pid.decode("ascii", "replace") or self._own


def _of_call(stage: bytes, process: str, trace: bytes, fields: dict[bytes, bytes]) -> Column | None:
    """None if the line is cut."""
    function, weight = fields[b"func"].decode("utf-8", "replace"), _weight(fields)
    if stage != _FUNCTION_END:
        took = _behind(fields, b"duration", b"s")
        return None if took is None else Stages(process, function, weight, _STAGES[stage], [took])
    total = _behind(fields, b"total_duration", b"s")
    if total is None:
        return None
    get, compute, put = (
        _behind(fields, name, b"%") for name in (b"get_ratio", b"compute_ratio", b"put_ratio")
    )
    is_shared = get is not None and compute is not None and put is not None
    shares = [(get or 0.0, compute or 0.0, put or 0.0)] if is_shared else []
    return Calls(process, function, weight, _error(fields), [total], shares, [trace], _numbers(fields))


def _operation(kind: int, process: str, fields: dict[bytes, bytes]) -> Operations | None:
    took = _behind(fields, b"duration", b"s")
    if took is None:
        return None
    size_mib, speed_mib = _number(fields, b"data_size_mb"), _number(fields, b"throughput_mbps")
    if size_mib is None and speed_mib is not None:
        size_mib = speed_mib * took
    is_known = size_mib is not None and b"unsized" not in fields
    size = size_mib * MIB if size_mib is not None and is_known else None
    rows, columns = _number(fields, b"batch_size"), _number(fields, b"fields")
    return Operations(
        process, kind, _weight(fields), _error(fields), [took], [size], [rows], [columns], _numbers(fields)
    )


def _behind(fields: dict[bytes, bytes], name: bytes, unit: bytes) -> float | None:
    """The value of a field such as `duration=0.060000s`; None if it is missing or cut."""
    value = fields.get(name, b"")
    return _value(value[:-1]) if value.endswith(unit) else None


def _number(fields: dict[bytes, bytes], name: bytes) -> float | None:
    return _value(fields.get(name, b""))


def _numbers(fields: dict[bytes, bytes]) -> list[int]:
    number = _number(fields, b"number")
    return [] if number is None else [int(number)]


def _weight(fields: dict[bytes, bytes]) -> float:
    return _number(fields, b"weight") or 1.0


def _error(fields: dict[bytes, bytes]) -> str:
    return fields.get(b"error", b"").decode("utf-8", "replace")


def _value(digits: bytes) -> float | None:
    try:
        value = float(digits)
    except ValueError:
        return None
    return value if 0 <= value < 1e12 else None
