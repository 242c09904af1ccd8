"""Run files read from front to back in constant memory, as records or, where many are alike, in columns.

Millions of lines are of a few kinds whose fields are integers and texts. Such lines are made into columns
together: by the C extension `_reading` where that was built, else by one call of the JSON decoder for some
hundred of them. Every other line, and every line that either of them does not take, is decoded by itself, so
that the same comes out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import takewhile
from operator import itemgetter
from types import NoneType
from typing import Any, BinaryIO, NamedTuple

from flagscale_perf.spine import hot
from flagscale_perf.spine.jsonl import (
    MAX_INT,
    MAX_LINE_BYTES,
    MAX_NS,
    MAX_TEXT,
    STRICT,
    BadLine,
    decode,
    fields_of,
)
from flagscale_perf.spine.records import KINDS, TYPES, Record, tuple_of

HEAD_BYTES, CHUNK_BYTES = (
    64 << 10,
    256 << 10,
)  # read first, as often the header is all that is wanted, and then
PLAIN_BYTES = 128 << 10  # decoded by one call
MIN_FIELDS, MAX_FIELDS = 2, 64
_KIND = re.compile(rb'\{"kind":"(\w{1,64})",')
_INTEGER, _NONE, _TEXT, _WIDE = 1, 2, 4, 8  # as in _reading.c
_FLAT = {int: _INTEGER, NoneType: _NONE, str: _TEXT}


class Block(NamedTuple):
    """Records of one type, one after the other in the file.

    Attributes:
        type: of them.
        columns: the values of each field, in the order of the fields.
    """

    type: Any
    columns: Sequence[list[Any]]

    def records(self) -> Iterator[Record]:
        """The same one by one."""
        for values in zip(*self.columns, strict=True):
            yield tuple_of(self.type, values)


def read_records(file: BinaryIO) -> Iterator[Record | BadLine]:
    """Every line of the file as a record or a `BadLine`, in constant memory."""
    for block in read_blocks(file):
        if isinstance(block, Block):
            yield from block.records()
        else:
            yield block


def read_blocks(file: BinaryIO) -> Iterator[Block | Record | BadLine]:
    """The same, with records in columns where several are alike; all in the order of the file."""
    number, rest, size = 0, b"", HEAD_BYTES
    while True:
        chunk = file.read(size)
        data = rest + chunk
        end = data.rfind(b"\n") + 1
        yield from _whole_lines(data[:end], number)
        number += data.count(b"\n")
        rest, size = data[end:], CHUNK_BYTES
        if len(rest) > MAX_LINE_BYTES:
            number += 1
            yield _too_long(number)  # first: who wants the header alone need not read on
            rest = _behind_line(file)
        elif not chunk:
            break
    if rest:
        yield BadLine(number + 1, "cut off", torn=True)


def _too_long(number: int) -> BadLine:
    return BadLine(number, f"longer than {MAX_LINE_BYTES} bytes")


def _behind_line(file: BinaryIO) -> bytes:
    """What of the file has been read behind the end of the line that it stands in."""
    while (chunk := file.read(CHUNK_BYTES)) and b"\n" not in chunk:
        pass
    return chunk.partition(b"\n")[2]


def _whole_lines(data: bytes, before: int) -> Iterator[Block | Record | BadLine]:
    place, number, counted = 0, before, 0
    while place < len(data):
        end, columns = data.index(b"\n", place) + 1, None
        kind = _KIND.match(data, place)
        shape = _shape(kind[1]) if kind else None
        if shape is not None:
            end, columns = shape.take(data, place, end)
        if shape is not None and columns is not None:
            yield Block(shape.type, columns)
        else:
            number += data.count(b"\n", counted, place)
            counted = place
            for each, line in enumerate(data[place : end - 1].split(b"\n"), number + 1):
                yield _decoded(line + b"\n", each)
        place = end


def _decoded(line: bytes, number: int) -> Record | BadLine:
    if len(line) > MAX_LINE_BYTES:
        return _too_long(number)
    try:
        return decode(line)
    except ValueError as error:
        return BadLine(number, str(error))


class _Shape:
    """How lines of one kind look whose fields are all integers, texts or null.

    Attributes:
        type: of their records.
    """

    def __init__(self, kind: bytes, record_type: Any) -> None:
        self.type = record_type
        self._kind = kind.decode()
        self._fields = fields_of(record_type)
        self._begin = b'{"kind":"%s",' % kind
        names = [field.name for field in self._fields]
        duration = TYPES[record_type].duration
        self._duration = None if duration is None else names.index(duration)
        first, *others = (b'"%s":' % name.encode() for name in names)
        self._keys = (self._begin + first, *(b"," + key for key in others))
        self._allowed = bytes(
            sum(_FLAT[each] for each in field.types) | _WIDE * (_limit(field.name) > MAX_NS)
            for field in self._fields
        )
        self._values_of: Callable[[Any], tuple[Any, ...]] = itemgetter("kind", *names)

    def take(self, data: bytes, place: int, end: int) -> tuple[int, Sequence[list[Any]] | None]:
        """Where the lines end that were looked at, the first one of which ends at `end`; their values, column
        by column, or None if these lines have to be read one by one.
        """
        if _extension is None:
            taken, columns = self._take_plainly(data, place, end)
        else:
            taken, columns = _extension.take_columns(data, place, self._keys, self._allowed)
            if taken <= place:
                return end, None
        return taken, None if columns and self._has_negative_time(columns) else columns

    def _has_negative_time(self, columns: Sequence[list[Any]]) -> bool:
        return self._duration is not None and min(time or 0 for time in columns[self._duration]) < 0

    def _take_plainly(self, data: bytes, place: int, end: int) -> tuple[int, Sequence[list[Any]] | None]:
        end = max(end, data.rfind(b"\n", place, place + PLAIN_BYTES) + 1)
        lines = data[place : end - 1].split(b"\n")
        alike = [*takewhile(lambda line: line.startswith(self._begin), lines)]
        try:
            # No text goes over the end of a line, nor an object: it would have one inside.
            rows = STRICT.decode("[" + b",\n".join(alike).decode() + "]")
            kinds, *columns = map(list, zip(*map(self._values_of, rows), strict=True))
            are_whole = len(rows) == len(alike) and {*map(len, rows)} == {len(self._fields) + 1}
            is_right = are_whole and {*kinds} == {self._kind} and all(map(_fits, self._fields, columns))
        except (ValueError, LookupError, TypeError, RecursionError):
            is_right = False
        return place + sum(map(len, alike)) + len(alike), columns if is_right else None


def _limit(name: str) -> int:
    return MAX_NS if name.endswith("_ns") else MAX_INT


def _fits(field: Any, column: list[Any]) -> bool:
    """Whether all values of a column are what the field may hold."""
    types = {*map(type, column)}
    if not types <= {*field.types}:
        return False
    limit = _limit(field.name)
    integers = [value for value in column if type(value) is int] if len(types) > 1 else column
    if int in types and not (-limit < min(integers) and max(integers) < limit):
        return False
    return str not in types or max(len(value) for value in column if type(value) is str) <= MAX_TEXT


def _shape(kind: bytes) -> _Shape | None:
    """None for a kind that is not known, or has other fields."""
    record_type = KINDS.get(kind.decode())
    return None if record_type is None else _shape_of(kind, record_type)


@cache
def _shape_of(kind: bytes, record_type: Any) -> _Shape | None:
    if not issubclass(record_type, tuple):
        return None
    fields = fields_of(record_type)
    is_flat = all(each in _FLAT for field in fields for each in field.types)
    return _Shape(kind, record_type) if is_flat and MIN_FIELDS <= len(fields) <= MAX_FIELDS else None


_extension: Any = hot.load("_reading")
