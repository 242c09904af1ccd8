"""The one codec of run files: a record a line, `kind` first, strict JSON (no NaN), compact.

It needs the standard library alone, so that a writer can go on with a file of its own (`recall` does not
check types). Any other file is read and checked by `store.decoder`.
"""

from __future__ import annotations

import json
import math
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, NamedTuple, Protocol, TypeVar

from flagscale_perf.spine.records import KINDS, EventRecord, Record, kind_of

MAX_LINE_BYTES = 1 << 20
CHUNK_BYTES = 64 << 10  # that are read at once
MAX_DEPTH = 20  # of what is free in a header: a model's shape has 3; what walks it later may recurse
# of a record's list or mapping: the ranks' record has 256 entries, a node's one for each of its ranks
MAX_ITEMS = 1024
MAX_TEXT = 2048  # characters of a record's text; an event's is cut there when it is written
MAX_INT = 10**38  # of a `Wide` field and what is free: the digits of a table's decimal, well within a float
MAX_NS = 1 << 63  # of every other integer; keeps every time within the years a datetime has

Read = TypeVar("Read")


class Source(Protocol):
    """What is read from front to back."""

    def read(self, size: int, /) -> bytes:
        """The next bytes; fewer at the end."""


class BadLine(NamedTuple):
    """A line that is no record.

    Attributes:
        number: of the line, from 1.
        reason: one phrase.
        torn: it is the last one and has no end: the writer died while it wrote it.
    """

    number: int
    reason: str
    torn: bool = False


def encode(record: Record) -> bytes:
    """The record's line. NaN and infinities become null, and the text of an event ends at `MAX_TEXT`."""
    if isinstance(record, EventRecord) and len(record.text) > MAX_TEXT:
        record = record._replace(text=record.text[: MAX_TEXT - 3] + "...")
    values: dict[str, Any]
    if hasattr(record, "_asdict"):
        values = record._asdict()
    else:  # not by `asdict`, which copies each value
        values = {each.name: getattr(record, each.name) for each in fields(record)}
    return (dump({"kind": kind_of(type(record))} | values) + "\n").encode()


def dump(value: Any) -> str:
    """Strict, compact JSON in ASCII; NaN and infinities become null, unknown types their text."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"), default=str)
    except ValueError:
        return json.dumps(finite(value), allow_nan=False, separators=(",", ":"), default=str)


def finite(value: Any) -> Any:
    """The same with None in the place of NaN and infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def recall(line: bytes) -> Record:
    """The record of a line of this process's own machine; types are not checked. Raises ValueError."""
    content = json.loads(line)
    try:
        record_type = KINDS[content.pop("kind")]
        return record_type(**{name: content[name] for name in record_type.__annotations__ if name in content})
    except (AttributeError, LookupError, TypeError):
        raise ValueError("no record of this version") from None


def read_records(file: Source, decode: Callable[[bytes], Record]) -> Iterator[Record | BadLine]:
    """Every line of the file as a record or a `BadLine`, in constant memory."""
    for number, data in WholeLines(file):
        yield from [data] if isinstance(data, BadLine) else one_by_one(data, number, decode)


class WholeLines:
    """The lines of a file from front to back: blocks of whole ones, each with the number of lines before it,
    and what is not a whole line.

    Attributes:
        number: of lines before `rest`.
        rest: the beginning of the next line, as far as it has been read.
    """

    def __init__(self, file: Source, number: int = 0, rest: bytes = b"") -> None:
        """Goes on where an earlier reading had this `number` and `rest`."""
        self.number, self.rest = number, rest
        self._file = file

    def __iter__(self) -> Iterator[tuple[int, bytes | BadLine]]:
        is_begin = not (self.number or self.rest)
        while True:
            chunk = self._file.read(CHUNK_BYTES)
            data = self.rest + (chunk.removeprefix(BOM_UTF8) if is_begin else chunk)  # editors put that there
            is_begin, end = False, data.rfind(b"\n") + 1
            if end:
                yield self.number, data[:end]
            self.number += data.count(b"\n")
            self.rest = data[end:]
            if len(self.rest) > MAX_LINE_BYTES:
                self.number += 1
                # First, as who wants the header alone need not read on.
                yield self.number, _too_long(self.number)
                self.rest = _behind_line(self._file)
            elif not chunk:
                break
        if self.rest:
            yield self.number, BadLine(self.number + 1, "cut off", torn=True)


def _too_long(number: int) -> BadLine:
    return BadLine(number, f"longer than {MAX_LINE_BYTES} bytes")


def _behind_line(file: Source) -> bytes:
    """Skips to the end of the current line; returns the bytes read past it."""
    while (chunk := file.read(CHUNK_BYTES)) and b"\n" not in chunk:
        pass
    return chunk.partition(b"\n")[2]


def one_by_one(data: bytes, before: int, decode: Callable[[bytes], Read]) -> Iterator[Read | BadLine]:
    """Decodes each line, which stands behind `before` others. `decode` raises ValueError for a bad one."""
    for number, line in enumerate(data[:-1].split(b"\n"), before + 1):
        if len(line) >= MAX_LINE_BYTES:
            yield _too_long(number)
            continue
        try:
            yield decode(line)
        except ValueError as error:
            yield BadLine(number, str(error))
