"""The one codec of run files: a record a line, `kind` first, strict JSON (no NaN), compact.

Reading keeps the good lines of a damaged file: a line that is no record comes out as a `BadLine` with the
reason.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from operator import itemgetter
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from flagscale_perf.spine.records import KINDS, TYPES, EventRecord, Record, kind_of

MAX_LINE_BYTES = 1 << 20
MAX_DEPTH = 20  # of what is free in a header: a model's shape has 3; what walks it later may recurse
# of a record's list or mapping: the ranks' record has 256 entries, a node's one for each of its ranks
MAX_ITEMS = 1024
MAX_TEXT = 2048  # characters of a record's text; an event's is cut there when it is written
MAX_INT = 1 << 127  # what a record can hold; also keeps every sum and quotient within a float
MAX_NS = 1 << 63  # keeps every time within the years a datetime has
_MAX_LAYOUTS = 128


class BadLine(NamedTuple):
    """A line that is no record.

    Attributes:
        number: of the line, from 1.
        reason: one phrase.
        torn: it is the last one and has no end: the writer died in the middle of it.
    """

    number: int
    reason: str
    torn: bool = False


class Field(NamedTuple):
    """A field of a record.

    Attributes:
        name: of it.
        types: that its value may have.
        values: the same of what is in a mapping or a list; None where that may be anything.
        default: what it is in a line without it, which an earlier version may have written: the record's own
            default, or None where it may be unknown. `...`: every line has to have it.
    """

    name: str
    types: tuple[type, ...]
    values: tuple[type, ...] | None
    default: Any


def fields_of(record_type: type) -> list[Field]:
    """In their order."""
    defaults = getattr(record_type, "_field_defaults", vars(record_type))  # a NamedTuple's, or a dataclass's
    return [
        _field(name, get_args(hint) if _is_union(hint) else (hint,), defaults.get(name, ...))
        for name, hint in get_type_hints(record_type).items()
    ]


def _field(name: str, hints: tuple[Any, ...], default: Any) -> Field:
    """A `tuple[int, ...]`, which the ring keeps integers in, is read back as the list that JSON has."""
    lists: list[Any] = [list[int] if get_origin(hint) is tuple else hint for hint in hints]
    values = next((get_args(hint)[-1] for hint in lists if get_origin(hint) in (dict, list)), Any)
    return Field(
        name,
        tuple(get_origin(hint) or hint for hint in lists),
        None if values is Any else get_args(values) or (values,),
        None if default is ... and type(None) in hints else default,
    )


def _is_union(hint: Any) -> bool:
    return type(None) in get_args(hint)


STRICT = json.JSONDecoder(
    parse_constant=lambda name: _refuse_constant(name), parse_float=lambda text: _finite_float(text)
)


class _Layout(NamedTuple):
    """How to check a record whose values have certain types, all of them known to be right.

    Attributes:
        integers: gets the integers out of the values.
        integer_fields: theirs.
        sized: texts and fields with values inside, which have to be looked at one by one.
    """

    integers: Callable[[tuple[Any, ...]], tuple[int, ...]]
    integer_fields: list[Field]
    sized: list[Field]


class _Reader:
    """Makes records of one kind. Millions of lines have one of few shapes, so the types of a line's values
    lead to what is left to check; only lines that were right bring a new shape in.
    """

    def __init__(self, record_type: Any) -> None:
        self._type = record_type
        self._fields = fields_of(record_type)
        self._duration = TYPES[record_type].duration
        self._values_of = _getter([field.name for field in self._fields])
        self._layouts: dict[tuple[type, ...], _Layout] = {}
        self._is_tuple = issubclass(record_type, tuple)
        self._is_checked_whole = hasattr(record_type, "__post_init__")

    def read(self, content: dict[str, Any], has_minus: bool) -> Record:
        """The record. Raises ValueError. `has_minus`: there may be numbers below 0."""
        record = self._quickly(content, has_minus) or self._closely(content)
        if has_minus and self._duration and (getattr(record, self._duration) or 0) < 0:
            raise ValueError(f"field {self._duration!r} is below 0, and it is a time")
        return record

    def _closely(self, content: dict[str, Any]) -> Record:
        values = tuple(_value(content, field) for field in self._fields)
        if len(self._layouts) < _MAX_LAYOUTS:
            self._layouts[tuple(map(type, values))] = _layout(self._fields, values)
        return self._type(*values)

    def _quickly(self, content: dict[str, Any], has_minus: bool) -> Record | None:
        """The record if it has all fields, a known shape, and is right; None if it has to be read closely."""
        try:
            values = self._values_of(content)
        except KeyError:
            return None
        layout = self._layouts.get(tuple(map(type, values)))
        if layout is None:
            return None
        integers = layout.integers(values)
        # MAX_NS is the lowest limit there is
        if integers and (max(integers) >= MAX_NS or (has_minus and min(integers) <= -MAX_NS)):
            for field in layout.integer_fields:
                _value(content, field)
        for field in layout.sized:
            _value(content, field)
        return self._made(values, content)

    def _made(self, values: tuple[Any, ...], content: dict[str, Any]) -> Record | None:
        if self._is_tuple:
            return tuple.__new__(self._type, values)
        if self._is_checked_whole or len(content) != len(values) + 1:
            return None
        record = object.__new__(self._type)
        del content["kind"]
        # A frozen dataclass sets one field after the other, which takes as long as parsing them.
        object.__setattr__(record, "__dict__", content)
        return record


class _Readers(dict[type, _Reader]):
    """Of each record type, made when its first line comes."""

    def __missing__(self, record_type: type) -> _Reader:
        reader = self[record_type] = _Reader(record_type)
        return reader


_READERS = _Readers()


def encode(record: Record) -> bytes:
    """The record's line, newline included. NaN and infinities become null, and the text of an event ends at
    `MAX_TEXT`.
    """
    if isinstance(record, EventRecord) and len(record.text) > MAX_TEXT:
        record = record._replace(text=record.text[: MAX_TEXT - 3] + "...")
    fields: dict[str, Any] = record._asdict() if hasattr(record, "_asdict") else asdict(record)
    return (dump({"kind": kind_of(type(record))} | fields) + "\n").encode()


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


def decode(line: bytes) -> Record:
    """The record of a line. Raises ValueError with the reason; fields it does not know are left out."""
    try:
        content = _parsed(line.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error.msg} at character {error.pos + 1}") from None
    if not isinstance(content, dict):
        raise ValueError("no JSON object")
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"this version knows no records of kind {str(kind)[:40]!r}")
    return _READERS[KINDS[kind]].read(content, b"-" in line)


def _parsed(text: str) -> Any:
    try:
        content, end = STRICT.raw_decode(text)
    except json.JSONDecodeError:
        return STRICT.decode(text)  # there may be white space before it; else this says what is wrong
    return content if text[end:] in ("\n", "") else STRICT.decode(text)


def _layout(fields: list[Field], values: tuple[Any, ...]) -> _Layout:
    places = [place for place, value in enumerate(values) if type(value) is int]
    sized = [field for field, value in zip(fields, values, strict=True) if type(value) in (dict, list, str)]
    return _Layout(_getter(places), [fields[place] for place in places], sized)


def _getter(places: list[Any]) -> Callable[[Any], tuple[Any, ...]]:
    if len(places) < 2:  # of one place an itemgetter makes no tuple
        return lambda values: tuple(values[place] for place in places)
    return itemgetter(*places)


def _value(content: dict[str, Any], field: Field) -> Any:
    value = content.get(field.name, field.default)
    if value is ...:
        raise ValueError(f"field {field.name!r} is missing")
    if type(value) not in field.types:  # exact: True is no integer here
        raise ValueError(
            f"field {field.name!r} is {type(value).__name__}, not "
            f"{' or '.join(t.__name__ for t in field.types)}"
        )
    if type(value) is str:
        return _text(value, field.name)
    if field.values:
        _check_values(value, field.name, field.values)
    elif type(value) in (dict, list):
        _check_free(value, field.name)
    _check_range(_parts(value) if field.values else [value], field.name)
    return value


def _check_range(parts: list[Any], name: str) -> None:
    limit = MAX_NS if name.endswith("_ns") else MAX_INT
    if any(type(part) is int and not -limit < part < limit for part in parts):
        raise ValueError(f"field {name!r} is out of range")


def _check_values(value: Any, name: str, types: tuple[type, ...]) -> None:
    if any(type(part) not in types for part in _parts(value)):
        raise ValueError(f"field {name!r} holds what is not {' or '.join(t.__name__ for t in types)}")
    if value is not None and _is_large(value):
        raise ValueError(
            f"field {name!r} holds more than {MAX_ITEMS} values, or a text of more than {MAX_TEXT} characters"
        )


def _is_large(value: list[Any] | dict[str, Any]) -> bool:
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    return len(value) > MAX_ITEMS or any(type(part) is str and len(part) > MAX_TEXT for part in parts)


def _text(value: str, name: str) -> str:
    if len(value) > MAX_TEXT:
        raise ValueError(f"field {name!r} has more than {MAX_TEXT} characters")
    return value


def _check_free(value: Any, name: str, depth: int = 1) -> None:
    """Refuses free content nested too deep to walk, or with a number too large to divide."""
    if depth > MAX_DEPTH:
        raise ValueError(f"field {name!r} is nested more than {MAX_DEPTH} deep")
    for part in _parts(value):
        if type(part) is int and not -MAX_INT < part < MAX_INT:
            raise ValueError(f"field {name!r} is out of range")
        _check_free(part, name, depth + 1)


def _parts(value: Any) -> list[Any]:
    return list(value.values()) if type(value) is dict else value if type(value) is list else []


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _finite_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is too large for a number")
    return number
