"""Records as bytes, to hand them from one process to another: numbers cross as they lie in memory."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from operator import attrgetter, itemgetter
from types import UnionType
from typing import Any, NamedTuple, Union, cast, get_args, get_origin, get_type_hints

from flagscale_perf.spine.mappings import Mappings
from flagscale_perf.spine.records import KINDS, RunHeader
from flagscale_perf.store.decoder import Chunk, Decoder

LENGTH_BYTES = 8
_NUMBERS = {int: "q", float: "d"}
_NONE, _JSON, _KEYS = "none", "json", "keys"
_MOST = 1 << 63
Getter = Callable[..., Callable[[Any], Any]]
Spec = list[
    Any
]  # of a column: its code, how many bytes it has, and of mappings their keys with their columns


class _Plan:
    """How rows that follow one another are packed: numbers that are all known, what none knows, mappings that
    all have the same keys, and all else as it is.
    """

    def __init__(self, codes: dict[str, str], rows: Sequence[Any], getter: Getter) -> None:
        """Such that it fits at least these rows; `getter` of names makes what takes their values from one."""
        self.numbers: list[str] = []
        self.unknown: list[str] = []
        self.others: list[str] = []
        self.inner: dict[str, _Plan] = {}
        self.codes, self._getter = codes, getter
        for name, column in zip(codes, zip(*self._values([*codes], rows), strict=True), strict=True):
            self._place(name, codes[name], column)
        self._pack = struct.Struct("=" + "".join(codes[name] for name in self.numbers)).pack

    def _place(self, name: str, code: str, column: Sequence[Any]) -> None:
        nones = column.count(None)
        if nones == len(column):
            self.unknown.append(name)
        elif nones:
            self.others.append(name)
        elif code == "d" or (code == "q" and -_MOST <= min(column) <= max(column) < _MOST):
            self.numbers.append(name)
        elif code == _KEYS and column[0] and all(one.keys() == column[0].keys() for one in column):
            self.inner[name] = _Plan(dict.fromkeys(column[0], "q"), column, itemgetter)
        else:
            self.others.append(name)

    def _values(self, names: Sequence[str], rows: Sequence[Any]) -> Iterable[tuple[Any, ...]]:
        get = self._getter(*names)
        return map(get, rows) if len(names) > 1 else zip(map(get, rows))

    def block(self, rows: Sequence[Any]) -> _Block | None:
        """These rows, packed; None where they do not fit."""
        try:
            if self.unknown and {*self._values(self.unknown, rows)} != {(None,) * len(self.unknown)}:
                return None
            pack = self._pack
            numbers = b"".join(
                [pack(*row) for row in self._values(self.numbers, rows)] if self.numbers else ()
            )
            others = {name: [*map(self._getter(name), rows)] for name in self.others}
            inner = {}
            for name, plan in self.inner.items():
                found = [*map(self._getter(name), rows)]
                if {*map(len, found)} != {len(plan.codes)} or (block := plan.block(found)) is None:
                    return None
                inner[name] = block
        except (TypeError, KeyError, struct.error):
            return None
        return _Block(len(rows), numbers, others, inner)

    def packed(self, numpy: Any, blocks: Sequence[_Block], buffers: list[Any]) -> list[Spec]:
        """The columns of all blocks; what they hold goes behind the buffers."""
        import msgspec

        places = {name: str(place) for place, name in enumerate(self.numbers)}  # numpy takes no empty name
        dtype = numpy.dtype([(place, self.codes[name]) for name, place in places.items()])
        numbers = numpy.frombuffer(b"".join(block.numbers for block in blocks), dtype) if self.numbers else {}
        specs: dict[str, Spec] = {name: [_NONE, 0] for name in self.codes}
        for name, code in self.codes.items():
            if name in self.numbers:
                buffers.append(numbers[places[name]].tobytes())
                specs[name] = [code, len(buffers[-1])]
            elif name in self.others:
                column = [*chain.from_iterable(block.others[name] for block in blocks)]
                buffers.append(msgspec.json.encode(column))
                specs[name] = [_JSON, len(buffers[-1])]
            elif name in self.inner:
                own = [block.inner[name] for block in blocks]
                plan = self.inner[name]
                specs[name] = [_KEYS, 0, [*plan.codes], plan.packed(numpy, own, buffers)]
        return [*specs.values()]


class _Block(NamedTuple):
    """Rows, packed after a plan."""

    size: int
    numbers: bytes
    others: dict[str, list[Any]]
    inner: dict[str, _Block]


class Packer:
    """Packs the records of lines that follow one another."""

    def __init__(self, known: Decoder, types: Sequence[Any]) -> None:
        """`types` of records, as the other side has them. Raises ImportError without numpy."""
        import numpy

        self._numpy, self._known = numpy, known
        self._number_of = {known.struct_of(type_): number for number, type_ in enumerate(types)}
        self._codes = {known.struct_of(type_): _codes_of(type_) for type_ in types}
        self._begin()

    def _begin(self) -> None:
        self._types = bytearray()
        self._plans: dict[Any, _Plan] = {}
        self._blocks: dict[Any, list[_Block]] = {}

    def packed(self, lines: Iterable[memoryview]) -> Iterator[bytes]:
        """The records of these lines, as one chunk where they are alike. Raises ValueError where not every
        line is a record, or one is a header.
        """
        self._begin()
        for data in lines:
            yield from self._add(data)
        yield self._packed()

    def _add(self, data: memoryview) -> Iterator[bytes]:
        rows = self._known.rows(data)
        structs = list(map(type, rows))
        kinds = {*structs}
        if self._known.struct_of(RunHeader) in kinds or not self._are_lines(data, len(rows)):
            raise ValueError("a header, or a record that is no line")
        alike = {kind: [row for row in rows if type(row) is kind] for kind in kinds}
        blocks = {kind: self._plans[kind].block(own) for kind, own in alike.items() if kind in self._plans}
        if None in blocks.values():
            yield self._packed()
            self._begin()
            blocks = {}
        for kind, own in alike.items():
            self._known.check(own)
            if kind not in self._plans:
                self._plans[kind] = _Plan(self._codes[kind], own, attrgetter)
                blocks[kind] = self._plans[kind].block(own)
            self._blocks.setdefault(kind, []).append(cast("_Block", blocks[kind]))
        self._types += bytes(map(self._number_of.__getitem__, structs))

    def _are_lines(self, data: memoryview, records: int) -> bool:
        """Whether so many records are a line each: what ends a line is between two braces, as within a record
        it never is.
        """
        found = self._numpy.frombuffer(data, "u1")
        ends = self._numpy.flatnonzero(found == ord("\n"))
        is_between = (found[ends - 1] == ord("}")).all() and (found[ends[:-1] + 1] == ord("{")).all()
        return bool(len(ends) == records and ends[-1] == len(found) - 1 and is_between)

    def _packed(self) -> bytes:
        import msgspec

        buffers = [bytes(self._types)]
        specs = [
            (
                self._number_of[kind],
                sum(block.size for block in blocks),
                self._plans[kind].packed(self._numpy, blocks, buffers),
            )
            for kind, blocks in self._blocks.items()
        ]
        head = msgspec.json.encode((len(buffers[0]), specs))
        return b"".join([len(head).to_bytes(LENGTH_BYTES, "big"), head, *buffers])


@cache
def _codes_of(record_type: Any) -> dict[str, str]:
    return {name: _code_of(hint) for name, hint in get_type_hints(record_type).items()}


def _code_of(hint: Any) -> str:
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    known = [part for part in parts if part is not type(None)]
    if len(known) == 1 and get_origin(known[0]) is dict:
        return _KEYS if get_args(known[0]) in ((str, int | None), (str, int)) else _JSON
    return _NUMBERS.get(known[0], _JSON) if len(known) == 1 else _JSON


def unpacked(read: Callable[[int], memoryview]) -> Chunk:
    """What `Packer.packed` has packed. `read`: hands out the next so many bytes."""
    import msgspec

    count, specs = msgspec.json.decode(read(int.from_bytes(read(LENGTH_BYTES), "big")))
    known = [*KINDS.values()]
    types = [*map(known.__getitem__, read(count))]
    columns: dict[Any, Sequence[Sequence[Any]]] = {
        known[number]: [_column(spec, read, size) for spec in of_type] for number, size, of_type in specs
    }
    return Chunk(types, columns)


def _column(spec: Spec, read: Callable[[int], memoryview], size: int) -> Sequence[Any]:
    """A column of so many values."""
    import msgspec

    code, size_bytes, *more = spec
    if code == _NONE:
        return [None] * size
    if code == _KEYS:
        keys, specs = more
        return Mappings({key: _column(each, read, size) for key, each in zip(keys, specs, strict=True)})
    content = read(size_bytes)
    if code == _JSON:
        made: list[Any] = msgspec.json.decode(content)
        return made
    numbers = array(code)
    numbers.frombytes(content)
    return numbers
