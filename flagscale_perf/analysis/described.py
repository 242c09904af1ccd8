"""What records and the JSON of reports hold: each key with its type, its unit and what it means, read from
the type hints and docstrings that the code itself goes by.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from flagscale_perf.analysis.rules import Change, Evidence, Finding
from flagscale_perf.spine.figures import Table
from flagscale_perf.spine.records import KINDS

# By the end of a name, longest first.
UNITS = {
    "_bytes_per_s": "bytes/s",
    "_per_s": "1/s",
    "_ns": "ns",
    "_us": "us",
    "_ms": "ms",
    "_s": "s",
    "_bytes": "bytes",
    "_mib": "MiB",
    "_gb": "GB",
    "_mw": "mW",
    "_mj": "mJ",
    "_mhz": "MHz",
    "_c": "degrees C",
    "_flops": "FLOP",
    "_share": "share",
    "_ppm": "ppm",
    "_milli": "1/1000",
}
_NAMES = re.compile(r"    ((?:\w+)(?:, \w+)*): (.*)")
_MOST_DEPTH = 6


class Key(NamedTuple):
    """One key.

    Attributes:
        of: the kind of record, or the part of a report, that has it.
        name: as it stands in a line of a run file or in JSON; parts are joined by points.
        type: of its value; "null" beside it where the value may be unknown.
        unit: of a number; "" for a count, a text or what has its unit beside it.
        meaning: in a sentence.
    """

    of: str
    name: str
    type: str
    unit: str
    meaning: str


def keys(figures: Mapping[str, Table[Any, Any]], contents: Mapping[str, type]) -> Iterator[Key]:
    """Every key: of the records that are registered, of these figures, of findings, and of these contents of
    reports, each by its name.
    """
    for kind, record_type in sorted(KINDS.items()):
        yield from _fields(kind, record_type)
    for name, table in figures.items():
        for figure in table.figures:
            yield Key(name, figure.key, "number | null", figure.unit.name, figure.meaning)
    for name, part in (("finding", Finding), ("finding.evidence", Evidence), ("finding.change", Change)):
        yield from _fields(name, part)
    known = {figure.key: figure for table in figures.values() for figure in table.figures}
    for name, content in contents.items():
        for key in _nested(name, "", content, 0):
            same = known.get(key.name.rpartition(".")[2])
            if same is None or key.unit:
                yield key
            else:
                yield key._replace(unit=same.unit.name, meaning=same.meaning)


def _nested(of: str, prefix: str, kind: Any, depth: int) -> Iterator[Key]:
    """The keys of a data class and of those in its fields."""
    hints = get_type_hints(kind)
    for key in _fields(of, kind):
        yield key._replace(name=prefix + key.name)
        inner = _inner(hints[key.name])
        if inner is not None and inner not in (Finding, kind) and depth < _MOST_DEPTH:
            yield from _nested(of, f"{prefix}{key.name}.", inner, depth + 1)


def _inner(hint: Any) -> Any:
    """The data class or named tuple in a hint, if there is one."""
    for each in (hint, *get_args(hint)):
        if dataclasses.is_dataclass(each) or (inspect.isclass(each) and hasattr(each, "_fields")):
            return each
    found = [_inner(each) for each in get_args(hint)]
    return next((each for each in found if each is not None), None)


def _fields(of: str, kind: Any) -> Iterator[Key]:
    said = meanings(kind)
    for name, hint in get_type_hints(kind).items():
        yield Key(of, name, _type(hint), unit_of(name), said.get(name) or _in_words(kind, name, hint))


def _in_words(kind: Any, name: str, hint: Any) -> str:
    """Of a field that its class does not explain, because the name says it: what the part of it is, or the
    name in words, before what the class is.
    """
    inner = _inner(hint)
    if inner is not None:
        return _first_line(inner)
    end = next((each for each in UNITS if name.endswith(each)), "")
    return f"{name.removesuffix(end).replace('_', ' ')}; {_first_line(kind)}"


def _first_line(kind: Any) -> str:
    return inspect.cleandoc(kind.__doc__ or "").split("\n")[0]


def unit_of(name: str) -> str:
    """The unit that a name ends in; "" for none."""
    return next((unit for end, unit in UNITS.items() if name.endswith(end)), "")


def meanings(kind: type) -> dict[str, str]:
    """What the docstrings of a class, and of those it inherits from, say of its attributes."""
    said: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        names: list[str] = []
        about, found, after = inspect.cleandoc(each.__doc__ or "").partition("Attributes:\n")
        for line in after.split("\n") if found else ():
            if match := _NAMES.fullmatch(line):
                names = match[1].split(", ")
                said |= dict.fromkeys(names, match[2])
            elif line.startswith("     "):
                said |= {name: f"{said[name]} {line.strip()}" for name in names}
    return said


def _type(hint: Any) -> str:
    if get_origin(hint) in (Union, types.UnionType):
        return " | ".join(dict.fromkeys(map(_type, get_args(hint))))
    plain = {int: "integer", float: "number", str: "text", bool: "true or false", type(None): "null"}
    if hint in plain:
        return plain[hint]
    origin = get_origin(hint) or hint
    if origin in (dict, Mapping) or (inspect.isclass(origin) and issubclass(origin, Mapping)):
        return "object"
    if inspect.isclass(origin) and (dataclasses.is_dataclass(origin) or hasattr(origin, "_fields")):
        return "object"
    return "list" if origin is not Any else "any"
