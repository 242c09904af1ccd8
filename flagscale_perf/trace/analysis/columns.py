"""Columns from the lines of a log: of the lines of one process that differ only in their figures.

End lines of the usual shape are parsed many at a time. A line of any other shape is left to `lines`, which
makes columns from a single line.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from flagscale_perf.spine.text_lines import Shape, TextLines, Value
from flagscale_perf.trace.records import Kind

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
    made += [column for kind, found in zip(_KINDS, (puts, gets), strict=True)
             for column in _operations(kind, found, owner)]  # fmt: skip
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
