"""Columns from the lines of a log: of the lines of one process that differ only in their figures.

End lines of the usual shapes are parsed many at a time, each shape's by one regular expression. A line of any
other shape is left to `lines`, which makes columns from a single line.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from enum import IntFlag
from typing import Any, NamedTuple

from flagscale_perf.trace.records import Kind

MAX_WHOLE, MAX_DECIMALS, MAX_FIGURE = 12, 9, 15
_DIGITS = rb"(?>(?=[\d.]{1,%d}(?![\d.]))\d{1,%d}(?:\.\d{1,%d})?)" % (MAX_FIGURE + 1, MAX_WHOLE, MAX_DECIMALS)
_LINE_END = rb"(?:\x1b\[[\d;]*m)*\r?\n"


class Value(IntFlag):
    """What stands behind the text that begins a field; nothing where none of the first three is said.

    INTEGER has up to 12 digits; FIGURE may have a point, and 15 of them; TEXT has no `|`, no `[`, nothing
    that does not print, and does not end in a space. OPTIONAL: the field may be missing. LEFT_OUT: nobody
    wants it.
    """

    INTEGER, OPTIONAL, TEXT, FIGURE, LEFT_OUT = 1, 2, 4, 16, 32


_VALUES = {
    Value.INTEGER: rb"\d{1,%d}+" % MAX_WHOLE,
    Value.FIGURE: _DIGITS,
    Value.TEXT: rb"(?>[^|\[\x00-\x1f]*[^|\[\x00-\x20])",
    Value(0): b"",
}
_MADE: dict[Value, Any] = {Value.INTEGER: int, Value.FIGURE: float}
_NEEDED = Value.INTEGER | Value.FIGURE | Value.TEXT
_Values = list[Any]


class Shape:
    """One kind of line.

    Attributes:
        sign: a text that every line of it has.
    """

    def __init__(self, begin: bytes, fields: Sequence[tuple[bytes, Value]]) -> None:
        """`begin` has the mark at its front. Fields follow one another, with nothing in between."""
        self._values = [value & _NEEDED for _, value in fields]
        self._kept = [not value & Value.LEFT_OUT and bool(value & _NEEDED) for _, value in fields]
        must = [key for key, value in fields if not value & Value.OPTIONAL]
        self.sign = max((begin, *must), key=len)
        self._expression = re.compile(
            rb"^(.*)" + re.escape(begin) + b"".join(map(_expression, fields, self._kept)) + _LINE_END,
            re.MULTILINE,
        )

    def take(self, lines: Sequence[bytes]) -> tuple[tuple[_Values, ...], list[bytes]]:
        """Values of those that are of it, and the others."""
        step = self._expression.groups + 1
        parts: list[Any] = self._expression.split(b"\n".join(lines) + b"\n")
        found = iter([parts[place::step] for place in range(1, step)])
        columns = [list(next(found))]
        for value, is_kept in zip(self._values, self._kept, strict=True):
            columns.append(_made(next(found), _MADE.get(value)) if is_kept else [])
        return tuple(columns), [line for part in parts[::step] for line in part.split(b"\n") if line]


def _expression(field: tuple[bytes, Value], is_kept: bool) -> bytes:
    key, value = field
    text = _VALUES[value & _NEEDED]
    text = re.escape(key) + (b"(" + text + b")" if is_kept else text)
    return b"(?:" + text + b")?+" if value & Value.OPTIONAL else text


def _made(texts: Sequence[bytes | None], make: Any) -> _Values:
    if make is None:
        return list(texts)
    return [None if text is None else make(text) for text in texts]


class TextLines:
    """Lines of several shapes with one mark."""

    def __init__(self, mark: bytes, shapes: Sequence[Shape]) -> None:
        """Of two shapes the first one takes a line. Each begins with the mark."""
        self._mark, self._shapes = mark, shapes

    def take(self, data: bytes) -> tuple[Sequence[tuple[_Values, ...]], bytes]:
        """Of each shape the columns of its lines: what stands before the mark, then each field; empty for
        what is not kept. And the lines that have the mark and are of no shape, or have it twice.
        """
        marked = [line for line in data.split(b"\n") if self._mark in line]
        left = [line for line in marked if line.count(self._mark) == 1]
        rest = [line for line in marked if line.count(self._mark) > 1]
        columns = []
        for shape in self._shapes:
            found, others = shape.take([line for line in left if shape.sign in line])
            columns.append(found)
            kept = set(others)
            left = [line for line in left if shape.sign not in line or line in kept]
        return columns, b"".join(line + b"\n" for line in rest + left)


MARK = b"[TQ-"
MIB = 1 << 20
_STAGES = (b"GET", b"COMPUTE", b"PUT")
_KINDS = (Kind.PUT, Kind.GET)
_LEFT_OUT = Value.TEXT | Value.LEFT_OUT
_FIGURE = Value.FIGURE | Value.OPTIONAL
_BEHIND = (
    (b" | timestamp=", Value.TEXT | Value.OPTIONAL | Value.LEFT_OUT),
    (b" | pid=", Value.TEXT | Value.OPTIONAL),
    (b" | number=", Value.INTEGER | Value.OPTIONAL),
    (b" | weight=", _FIGURE),
    (b" | step=", Value.INTEGER | Value.OPTIONAL | Value.LEFT_OUT),
)
_PARTITION = (b" | partition=", _LEFT_OUT | Value.OPTIONAL)
_CALL_END = Shape(
    b"[TQ-TRACE] trace_id=",
    [
        (b"", Value.TEXT),
        (b" | func=", Value.TEXT),
        (b" | stage=FUNCTION_END | total_duration=", Value.FIGURE),
        (b"s | get_ratio=", Value.FIGURE),
        (b"% | compute_ratio=", Value.FIGURE),
        (b"% | put_ratio=", Value.FIGURE),
        (b"%", Value(0)),
        *_BEHIND,
    ],
)


def _stage_end(stage: bytes) -> Shape:
    fields = [
        (b"", _LEFT_OUT),
        (b" | func=", Value.TEXT),
        (b" | stage=%s_END | duration=" % stage, Value.FIGURE),
        (b"s", Value(0)),
    ]
    return Shape(b"[TQ-TRACE] trace_id=", [*fields, *_BEHIND])


def _operation_end(kind: Kind) -> Shape:
    fields = [
        (b"", _LEFT_OUT),
        (b" | stage=TQ_CLIENT_%s_END | duration=" % kind.name.encode(), Value.FIGURE),
        (b"s", Value(0)),
        (b" | throughput_mbps=", _FIGURE),
        (b" | batch_size=", _FIGURE),
        (b" | fields=", _FIGURE),
        (b" | data_size_mb=", _FIGURE),
    ]
    return Shape(b"[TQ-DETAIL] trace_id=", [*fields, *_BEHIND, _PARTITION])


def _start(begin: bytes, *fields: tuple[bytes, Value]) -> Shape:
    """Pattern for any begin line. An unknown stage, or an end without figures, matches too."""
    behind = [(key, value | Value.LEFT_OUT) for key, value in _BEHIND]
    return Shape(begin, [(b"", _LEFT_OUT), *fields, (b" | stage=", Value.TEXT), *behind, _PARTITION])


_LINES = TextLines(
    MARK,
    [
        *map(_stage_end, _STAGES),
        _CALL_END,
        *map(_operation_end, _KINDS),
        _start(b"[TQ-TRACE] trace_id=", (b" | func=", _LEFT_OUT)),
        _start(b"[TQ-DETAIL] trace_id="),
    ],
)

Whose = Callable[[bytes, bytes], str]
_Rows = dict[tuple[Any, ...], list[tuple[Any, ...]]]


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
        shares: get, compute and put of each call, in percent of it; empty where they are not said.
        traces: id of each.
        numbers: of the calls in their process, as far as they are said.
    """

    process: str
    function: str
    weight: float
    error: str
    seconds: list[float]
    shares: list[tuple[float, float, float]]
    traces: list[bytes]
    numbers: list[int]


class Operations(NamedTuple):
    """Ends of the client's operations.

    Attributes:
        process, weight, error, seconds, numbers: as of calls.
        kind: a `records.Kind`.
        sizes: bytes of each; None where they are not known.
        rows, fields: the same.
    """

    process: str
    kind: int
    weight: float
    error: str
    seconds: list[float]
    sizes: list[float | None]
    rows: list[float | None]
    fields: list[float | None]
    numbers: list[int]


Column = Stages | Calls | Operations


class Usual(NamedTuple):
    """The content of a text's lines of the usual shape.

    Attributes:
        lines: how many these are.
        started: by stage (`GET_START`), lines that begin something.
        columns: lines that end something.
        rest: the lines that have the mark and are not as usual.
    """

    lines: int
    started: Counter[bytes]
    columns: list[Column]
    rest: bytes


def columns_of(text: bytes, whose: Whose) -> Usual:
    """Columns from whole lines. `whose` tells the process from the text before the mark and from `pid`."""
    taken, rest = _LINES.take(text)
    count = sum(len(heads) for heads, *_ in taken)
    owner = _Whose(whose)
    *stages, calls, puts, gets, trace, detail = ([column for column in each if column] for each in taken)
    made = [column for stage, found in enumerate(stages) for column in _stages(stage, found, owner)]
    made += _calls(calls, owner)
    made += [
        column
        for kind, found in zip(_KINDS, (puts, gets), strict=True)
        for column in _operations(kind, found, owner)
    ]
    started: Counter[bytes] = Counter()
    for found in (trace, detail):
        started.update(found[1] if found else ())
    return Usual(count, started, made, rest)


class _Whose:
    """The process of each line, looked up once for all lines that name it alike."""

    def __init__(self, whose: Whose) -> None:
        self._whose = whose
        self._known: dict[tuple[bytes, bytes | None], str] = {}

    def __call__(self, heads: Sequence[bytes], pids: Sequence[bytes | None]) -> list[str]:
        known = self._known
        pairs = list(zip(heads, pids, strict=True))
        for head, pid in {*pairs}.difference(known):
            known[head, pid] = self._whose(head, pid or b"")
        return [known[pair] for pair in pairs]


def _stages(stage: int, parts: Sequence[list[Any]], whose: _Whose) -> list[Column]:
    if not parts:
        return []
    heads, functions, times, pids, _, weights = parts
    groups: dict[tuple[str, bytes, float | None], list[float]] = defaultdict(list)
    for key, took in zip(zip(whose(heads, pids), functions, weights, strict=True), times, strict=True):
        groups[key].append(took)
    return [
        Stages(process, _text(function), weight or 1.0, stage, seconds)
        for (process, function, weight), seconds in groups.items()
    ]


def _calls(parts: Sequence[list[Any]], whose: _Whose) -> list[Column]:
    if not parts:
        return []
    heads, traces, functions, times, gets, computes, puts, pids, numbers, weights = parts
    keys = zip(whose(heads, pids), functions, weights, strict=True)
    shares = zip(gets, computes, puts, strict=True)
    made: list[Column] = []
    for (process, function, weight), rows in _grouped(keys, times, shares, traces, numbers).items():
        totals, shared, ids, own = map(list, zip(*rows, strict=True))
        made.append(Calls(process, _text(function), weight or 1.0, "", totals, shared, ids, _known(own)))
    return made


def _operations(kind: Kind, parts: Sequence[list[Any]], whose: _Whose) -> list[Column]:
    if not parts:
        return []
    heads, times, speeds, rows, fields, sizes, pids, numbers, weights = parts
    each = [
        size * MIB if size is not None else speed * took * MIB if speed is not None else None
        for size, speed, took in zip(sizes, speeds, times, strict=True)
    ]
    keys = zip(whose(heads, pids), weights, strict=True)
    made: list[Column] = []
    for (process, weight), found in _grouped(keys, times, each, rows, fields, numbers).items():
        seconds, bytes_of, rows_of, fields_of, own = map(list, zip(*found, strict=True))
        made.append(
            Operations(process, kind, weight or 1.0, "", seconds, bytes_of, rows_of, fields_of, _known(own))
        )
    return made


def _grouped(keys: Iterable[tuple[Any, ...]], *columns: Iterable[Any]) -> _Rows:
    groups: _Rows = defaultdict(list)
    for key, row in zip(keys, zip(*columns, strict=True), strict=True):
        groups[key].append(row)
    return groups


def _known(numbers: Iterable[int | None]) -> list[int]:
    return [number for number in numbers if number is not None]


def _text(text: bytes) -> str:
    return text.decode("utf-8", "replace")
