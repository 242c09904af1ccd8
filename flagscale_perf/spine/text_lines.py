"""Lines of a log taken apart many at a time, in columns.

A shape says what stands in a line, from a mark on, to the line's end. Lines that are exactly of one of the
shapes are taken apart together: by the C extension `_reading` where that was built, else by an expression for
each shape. Every other line that has the mark is handed back as it is, so that nobody has to trust a shape.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntFlag
from typing import Any

from flagscale_perf.spine import hot

MAX_WHOLE, MAX_DECIMALS, MAX_FIGURE = 12, 9, 15  # as in _reading.c
MAX_SHAPES = 16
_FIGURE = rb"(?>(?=[\d.]{1,%d}(?![\d.]))\d{1,%d}(?:\.\d{1,%d})?)" % (MAX_FIGURE + 1, MAX_WHOLE, MAX_DECIMALS)
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
    Value.FIGURE: _FIGURE,
    Value.TEXT: rb"(?>[^|\[\x00-\x1f]*[^|\[\x00-\x20])",
    Value(0): b"",
}
_MADE: dict[Value, Any] = {Value.INTEGER: int, Value.FIGURE: float}
_NEEDED = Value.INTEGER | Value.FIGURE | Value.TEXT
Column = list[Any]


class Shape:
    """One kind of line.

    Attributes:
        keys: what begins each field, the mark first.
        allowed: what stands behind each; of the first one it is the text before it.
        sign: a text that every line of it has.
    """

    def __init__(self, begin: bytes, fields: Sequence[tuple[bytes, Value]]) -> None:
        """`begin` has the mark at its front. Fields follow one another, with nothing in between."""
        self.keys = (begin, *(key for key, _ in fields))
        self.allowed = bytes((Value.TEXT, *(value for _, value in fields)))
        self._values = [value & _NEEDED for _, value in fields]
        self._kept = [not value & Value.LEFT_OUT and bool(value & _NEEDED) for _, value in fields]
        must = [key for key, value in fields if not value & Value.OPTIONAL]
        self.sign = max((begin, *must), key=len)
        self._expression = re.compile(
            rb"^(.*)" + re.escape(begin) + b"".join(map(_expression, fields, self._kept)) + _LINE_END,
            re.MULTILINE,
        )

    def take(self, lines: Sequence[bytes]) -> tuple[tuple[Column, ...], list[bytes]]:
        """Values of those that are of it, and the others."""
        step = self._expression.groups + 1
        parts: list[Any] = self._expression.split(b"\n".join(lines) + b"\n")
        found = iter([parts[place::step] for place in range(1, step)])
        columns = [list(next(found))]
        for value, is_kept in zip(self._values, self._kept, strict=True):
            columns.append(_values(next(found), _MADE.get(value)) if is_kept else [])
        return tuple(columns), [line for part in parts[::step] for line in part.split(b"\n") if line]


def _expression(field: tuple[bytes, Value], is_kept: bool) -> bytes:
    key, value = field
    text = _VALUES[value & _NEEDED]
    text = re.escape(key) + (b"(" + text + b")" if is_kept else text)
    return b"(?:" + text + b")?+" if value & Value.OPTIONAL else text


def _values(texts: Sequence[bytes | None], make: Any) -> Column:
    if make is None:
        return list(texts)
    return [None if text is None else make(text) for text in texts]


class TextLines:
    """Lines of several shapes with one mark."""

    def __init__(self, mark: bytes, shapes: Sequence[Shape]) -> None:
        """Of two shapes the first one takes a line. Each begins with the mark."""
        self._mark, self._shapes = mark, shapes
        self._given = tuple((shape.keys, shape.allowed) for shape in shapes)

    def take(self, data: bytes) -> tuple[Sequence[tuple[Column, ...]], bytes]:
        """Of each shape the columns of its lines: what stands before the mark, then each field; empty for
        what is not kept. And the lines that have the mark and are of no shape, or have it twice.
        """
        if _extension is not None:
            taken: tuple[Sequence[tuple[Column, ...]], bytes] = _extension.take_text_lines(
                data, self._mark, self._given
            )
            return taken
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


_extension: Any = hot.load("_reading")
if not hasattr(_extension, "take_text_lines"):  # built before this was in it
    _extension = None
