"""Lines of run files as records, in columns, by msgspec. Each record type becomes a struct whose fields say
what a value may be.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import partial, reduce
from itertools import groupby
from operator import attrgetter, or_
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from flagscale_perf.spine.jsonl import (
    MAX_DEPTH,
    MAX_INT,
    MAX_ITEMS,
    MAX_LINE_BYTES,
    MAX_NS,
    MAX_TEXT,
    BadLine,
    WholeLines,
    one_by_one,
)
from flagscale_perf.spine.packages import missing
from flagscale_perf.spine.records import KINDS, TYPES, Record, RunHeader, tuple_of
from flagscale_perf.spine.slots import Wide
from flagscale_perf.spine.units import printable

_MAX_REASON = 200
MOMENTS = ("_start_ns", "_at_ns", "_wall_ns", "_mono_ns")  # ends of the names of their fields
_BETWEEN = b'}\n{"kind":"'  # is in no record; a longer text is found faster
_HEADER = re.compile(rb'\{\s*"kind"\s*:\s*"header"')
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
# An escaped pair, half of one alone, which only a file's name can have, or anything else escaped.
_ESCAPED = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u[dD][89a-fA-F])|\\.")


class Chunk(NamedTuple):
    """Records that follow one another in a file.

    Attributes:
        types: the type of each.
        columns: of each type, the values of each field in the order of the fields.
    """

    types: Sequence[Any]
    columns: dict[Any, Sequence[Sequence[Any]]]

    def records(self) -> Iterator[Record]:
        """The records one by one."""
        makers = {type_: records_of(type_, columns) for type_, columns in self.columns.items()}
        return (next(makers[type_]) for type_ in self.types)

    def _of(self, types: AbstractSet[Any]) -> Chunk:
        return Chunk([*filter(types.__contains__, self.types)], {each: self.columns[each] for each in types})

    def between(self, begin: int, end: int) -> Chunk:
        """The records from one place up to another."""
        if (begin, end) == (0, len(self.types)):
            return self
        before, types = Counter(self.types[:begin]), self.types[begin:end]
        columns: dict[Any, Sequence[Sequence[Any]]] = {
            type_: [column[before[type_] : before[type_] + count] for column in self.columns[type_]]
            for type_, count in Counter(types).items()
        }
        return Chunk(types, columns)

    def parts(
        self, types: AbstractSet[Any], beside: AbstractSet[Any] = frozenset()
    ) -> Iterator[Chunk | Record]:
        """The same, those of these types that follow one another together; before them all those `beside`,
        which separate nothing.
        """
        if not beside.isdisjoint(self.columns):
            yield from self._of(self.columns.keys() & beside).records()
            others = self._of(self.columns.keys() - beside)
            yield from others.parts(types) if others.types else ()
            return
        if self.columns.keys() <= types:
            yield self
            return
        begin = 0
        for is_of, alike in groupby(self.types, types.__contains__):
            end = begin + len(list(alike))
            part = self.between(begin, end)
            yield from [part] if is_of else part.records()
            begin = end


class Joined(NamedTuple):
    """A second header: the file is two run files, one behind the other, or one of them twice.

    Attributes:
        number: of its line, from 1.
    """

    number: int


def read_chunks(lines: WholeLines) -> Iterator[Chunk | BadLine | Joined]:
    """A file in chunks, in its order and in constant memory; one with a damaged line is read line by line.
    Nothing follows a `Joined`.
    """
    known = decoder()
    for number, data in lines:
        if isinstance(data, BadLine):
            yield data
            continue
        chunk = _whole(known, data)
        if chunk is not None and _headers_fit(chunk, number, data):
            yield chunk
            continue
        begun = _second_header(data, is_first=number == 0)
        own = data[: data.rfind(b"\n", 0, begun) + 1]  # a torn line may stand right before the header
        if own:
            made = _whole(known, own)
            yield from one_by_one(own, number, known.line) if made is None else [made]
        if begun < len(data):
            yield Joined(number + own.count(b"\n") + 1)
            return


def _whole(known: Decoder, data: bytes) -> Chunk | None:
    try:
        return known.chunk(data)
    except (ValueError, RecursionError):
        return None


def _headers_fit(chunk: Chunk, number: int, data: bytes) -> bool:
    """Whether it has no header but the file's own: told from the records, to search all text takes longer."""
    if RunHeader not in chunk.columns:
        return True
    is_own = number == 0 and data.startswith(b"{") and chunk.types[0] is RunHeader
    return is_own and len(chunk.columns[RunHeader][0]) == 1


def is_header(line: bytes) -> bool:
    """Whether a header stands in the line, be it behind the rest of another line."""
    return _second_header(line, is_first=False) < len(line)


def _second_header(data: bytes, is_first: bool) -> int:
    """Where a header begins behind the file's own one; the length of the data where none does. No text has
    one in it: its quotes would be escaped.
    """
    if b'"header"' not in data:
        return len(data)
    found = _HEADER.search(data, 1 if is_first else 0)
    return found.start() if found else len(data)


class Decoder:
    """Reads lines as records of the types that are registered when it is made. Raises PerfError without
    msgspec.
    """

    def __init__(self) -> None:
        try:
            import msgspec
        except ImportError as error:
            raise missing("msgspec", error, "reading a run file") from None
        self._types = {_struct_of(msgspec, kind, type_): type_ for kind, type_ in KINDS.items()}
        self._decoder = msgspec.json.Decoder(reduce(or_, self._types))
        self._structs = {type_: struct for struct, type_ in self._types.items()}
        self._checks = {type_: list(_checks_of(type_)) for type_ in self._types.values()}
        self._values = msgspec.structs.astuple

    def chunk(self, data: bytes) -> Chunk:
        """The records of whole lines. Raises ValueError where not every line is a record."""
        if len(data) > MAX_LINE_BYTES:
            raise ValueError("a line may be too long")
        rows = self.rows(data)
        if not len(rows) == data.count(b"\n") == data.count(_BETWEEN) + 1:
            raise ValueError("a record that is no line")
        return self._chunk(rows)

    def rows(self, data: bytes | memoryview) -> list[Any]:
        """A struct for each record, whose attributes are the fields; whether it is a line, and what `check`
        checks, is left to the caller. Raises ValueError where not all is records.
        """
        found: list[Any] = self._decoder.decode_lines(data)
        return found

    def struct_of(self, record_type: Any) -> Any:
        """The type of its rows."""
        return self._structs[record_type]

    def check(self, rows: Sequence[Any]) -> None:
        """Raises ValueError where one of these rows of one type is no record."""
        for name, check in self._checks[self._types[type(rows[0])]]:
            get = attrgetter(name) if name else self._values
            found = [*map(get, rows)]
            check(found if name else [*zip(*found, strict=True)])

    def line(self, line: bytes) -> Chunk:
        """The record of one line. Raises ValueError with the reason; fields it does not know are left out."""
        try:
            row = self._decoder.decode(line)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        except ValueError as error:
            if _HALF.search(line):  # looked for first: to mend a long line takes seconds
                mended = _ESCAPED.sub(lambda found: b"\\" * bool(found[1]) + found[0], line)
                if mended != line:
                    return self.line(mended)
            is_unknown = str(error).endswith("$.kind`")
            reason = "this version knows no such records: " * is_unknown + str(error)
            raise ValueError(printable(reason)[-_MAX_REASON:]) from None
        return self._chunk([row])

    def _chunk(self, rows: list[Any]) -> Chunk:
        structs: list[Any] = list(map(type, rows))
        kinds = set(structs)
        columns: dict[Any, Sequence[Sequence[Any]]] = {}
        for struct in kinds:
            alike = rows if len(kinds) == 1 else [row for row in rows if type(row) is struct]
            made = columns[self._types[struct]] = list(zip(*map(self._values, alike), strict=True))
            for name, check in self._checks[self._types[struct]]:
                check(made[struct.__struct_fields__.index(name)] if name else made)
        return Chunk([self._types[struct] for struct in structs], columns)


_decoders: dict[tuple[Any, ...], Decoder] = {}


def decoder() -> Decoder:
    """The one for the types that are registered now."""
    known = tuple(KINDS.values())
    if known not in _decoders:
        _decoders.clear()
        _decoders[known] = Decoder()
    return _decoders[known]


def decode(line: bytes) -> Record:
    """The record of a line. Raises ValueError with the reason; fields it does not know are left out."""
    return next(decoder().line(line).records())


def records_of(record_type: Any, columns: Sequence[Sequence[Any]]) -> Iterator[Record]:
    """The records of columns in the order of the type's fields."""
    rows = zip(*columns, strict=True)
    if issubclass(record_type, tuple):
        return (tuple_of(record_type, row) for row in rows)
    return (record_type(*row) for row in rows)


def _struct_of(msgspec: Any, kind: str, record_type: Any) -> Any:
    """A field that has a default or may be unknown may be missing, as in files of earlier versions. Neither
    a moment nor a record's duration is negative; what is made of differences may be.
    """
    defaults = getattr(record_type, "_field_defaults", vars(record_type))  # a NamedTuple's, or a dataclass's
    never_negative = (*MOMENTS, f"_{TYPES[record_type].duration}")
    fields: list[tuple[Any, ...]] = []
    for name, hint in get_type_hints(record_type, include_extras=True).items():
        checked = _checked(msgspec.Meta, hint, 0 if f"_{name}".endswith(never_negative) else 1 - MAX_NS)
        if name in defaults:
            fields.append((name, checked, defaults[name]))
        else:
            fields.append((name, checked, None) if type(None) in get_args(hint) else (name, checked))
    return msgspec.defstruct(record_type.__name__, fields, tag=kind, tag_field="kind", kw_only=True, gc=False)


def _checked(meta: Any, hint: Any, lowest: int) -> Any:
    if hint == Wide or hint in (bool, float, type(None), dict[str, Any]):
        return hint
    if hint is int:
        return Annotated[int, meta(ge=lowest, le=MAX_NS - 1)]
    if hint is str:
        return Annotated[str, meta(max_length=MAX_TEXT)]
    origin, parts = get_origin(hint), [_checked(meta, part, lowest) for part in _parts_of(hint)]
    if origin in (Union, UnionType):
        return reduce(or_, parts)
    if origin is Annotated:
        return parts[0]
    many: Any = dict if origin is dict else list
    return Annotated[many[tuple(parts)], meta(max_length=MAX_ITEMS)]


def _parts_of(hint: Any) -> Sequence[Any]:
    return get_args(hint)[:1] if get_origin(hint) in (Annotated, tuple) else get_args(hint)


def _checks_of(record_type: Any) -> Iterator[tuple[str, Callable[[Sequence[Any]], None]]]:
    """Checks of a type that msgspec does not make: of the column so named, or under no name of all."""
    for name, hint in get_type_hints(record_type, include_extras=True).items():
        if hint == Wide or Wide in get_args(hint):
            yield name, partial(_check_wide, name)
        elif hint == dict[str, Any]:
            yield name, partial(_check_all_free, name)
    if hasattr(record_type, "__post_init__"):
        yield "", partial(_make_all, record_type)


def _make_all(record_type: Any, columns: Sequence[Sequence[Any]]) -> None:
    deque(records_of(record_type, columns), maxlen=0)


def _check_wide(name: str, column: Sequence[Any]) -> None:
    known = {*column} - {None}
    if known and not -MAX_INT < min(known) <= max(known) < MAX_INT:
        raise ValueError(f"field {name!r} is out of range")


def _check_all_free(name: str, column: Sequence[Any]) -> None:
    for value in column:
        _check_free(value, name)


def _check_free(value: Any, name: str, depth: int = 1) -> None:
    """Refuses free content nested too deep to walk, or with a number too large to divide."""
    if depth > MAX_DEPTH:
        raise ValueError(f"field {name!r} is nested more than {MAX_DEPTH} deep")
    if type(value) is int and not -MAX_INT < value < MAX_INT:
        raise ValueError(f"field {name!r} is out of range")
    for part in value.values() if type(value) is dict else value if type(value) is list else ():
        if type(part) in (dict, list, int):
            _check_free(part, name, depth + 1)
