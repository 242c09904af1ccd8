"""How a record lies in a slot of the ring; packing and unpacking follow from the fields of its type.

    crc32 (4 bytes) | slot number of the type (1) | 0 (1) | length (2) | sequence number (8) | fields

An integer takes 8 bytes, or 16 if its field says so; a text as many as its field says, padded with NUL; a
last field of many integers the rest of the slot. The lowest integer stands for None.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from flagscale_perf.spine import hot

SLOT_BYTES = 256
CRC_BYTES = 4
PREFIX = struct.Struct("<BxHQ")  # slot number, length, sequence number; the checksum goes before it
MAX_PAYLOAD = SLOT_BYTES - CRC_BYTES - PREFIX.size
_PREFIX_FIELDS = 3
_CRC = struct.Struct("<I")
_INTEGER_BYTES, _WIDE_BYTES = 8, 16
_NONE = -(2**63)
_NONE_WIDE = (-(2**127)).to_bytes(_WIDE_BYTES, "little", signed=True)


@dataclass(frozen=True)
class Bytes:
    """Metadata of a field: `Annotated[str, Bytes(16)]` takes 16 bytes of a slot."""

    count: int


Wide = Annotated[int, Bytes(_WIDE_BYTES)]  # an integer of 128 bits

Pack = Callable[[memoryview, int, int, Any], None]
Unpack = Callable[[bytes], Any]
_Make = Callable[[Iterable[Any]], Any]


# Kinds of fields, as the extension names them.
_INTEGER, _OPTIONAL, _WIDE, _TEXT, _MANY = "i", "o", "w", "s", "t"


class _Field(NamedTuple):
    name: str
    type: Any  # int, str or tuple
    is_optional: bool
    size: int | None  # None if it is not declared

    @property
    def stored(self) -> tuple[str, int]:
        """Kind and bytes; 0 bytes for a field of many integers."""
        if self.type is tuple:
            return _MANY, 0
        if self.size is not None:
            return _TEXT if self.type is str else _WIDE, self.size
        return _OPTIONAL if self.is_optional else _INTEGER, _INTEGER_BYTES


class Layout:
    """How the records of one type lie in a slot.

    Attributes:
        slot: the type's number.
        size: bytes of a slot that a record fills, without the values of a last field of many integers.
        room: how many integers the last field may hold; 0 if it is no field of many integers.
        unpack: the bytes of a slot behind its checksum -> the record.
    """

    def __init__(self, slot: int, record_type: Any) -> None:
        """Raises TypeError for a type that does not fit."""
        if not hasattr(record_type, "_make"):
            raise TypeError(f"{record_type.__name__} is stored in the ring, so it has to be a NamedTuple")
        fields = [
            _field_of(name, hint) for name, hint in get_type_hints(record_type, include_extras=True).items()
        ]
        has_tail = fields[-1].type is tuple
        fixed = _before_tail(fields, record_type.__name__) if has_tail else fields
        packed = PREFIX.format + "".join(map(_format, fixed))
        self.slot = slot
        self._fields = [field.stored for field in fields]
        self.size = CRC_BYTES + struct.calcsize(packed)
        if self.size > SLOT_BYTES:
            raise TypeError(
                f"{record_type.__name__} takes {self.size} bytes of the {SLOT_BYTES} that a slot has"
            )
        self.room = (SLOT_BYTES - self.size) // _INTEGER_BYTES if has_tail else 0
        if has_tail:
            structs = [struct.Struct(f"{packed}{count}q") for count in range(self.room + 1)]
            self._pack, self.unpack = _with_tail(slot, structs, record_type._make)
        else:
            layout, stored = struct.Struct(packed), _stored(self._fields)
            self._pack = _packer(slot, layout, stored)
            self.unpack = _unpacker(layout, stored, record_type._make)

    def packer(self) -> Pack:
        """A function (memory, offset, sequence number, record) that stores the slot, its checksum last.

        For a value that does not fit it raises struct.error, OverflowError, AttributeError, TypeError or
        IndexError.
        """
        extension = hot.extension
        return self._pack if extension is None else extension.Packer(self.slot, self._fields)


def _field_of(name: str, hint: Any) -> _Field:
    """Raises TypeError for what a slot cannot hold."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    held = [part for part in parts if part is not type(None)]
    first, *metadata = get_args(held[0]) if get_origin(held[0]) is Annotated else held[:1]
    size = next((each.count for each in metadata if isinstance(each, Bytes)), None)
    field = _Field(name, get_origin(first) or first, len(held) < len(parts), size)
    if len(held) > 1 or not _is_storable(field, first):
        raise TypeError(f"field {name!r} cannot be stored in the ring: {hint}")
    return field


def _is_storable(field: _Field, hint: Any) -> bool:
    """`hint`: the field's type with its parameters."""
    if field.type is int:
        return field.size in (None, _WIDE_BYTES)
    return not field.is_optional and (
        hint == tuple[int, ...] or (field.type is str and field.size is not None)
    )


def _before_tail(fields: list[_Field], type_name: str) -> list[_Field]:
    fixed = fields[:-1]
    if any(field.size or field.is_optional for field in fixed):
        raise TypeError(f"{type_name}: only plain integers go before a field of many integers")
    return fixed


def _format(field: _Field) -> str:
    if field.type is tuple:
        raise TypeError(f"field {field.name!r} can only be the last one of a record in the ring")
    return "q" if field.size is None else f"{field.size}s"


class _Stored(NamedTuple):
    """Positions of the fields whose values are stored in another form."""

    optional: list[int]
    wide: list[int]
    texts: list[tuple[int, int]]  # with their sizes


def _stored(fields: list[tuple[str, int]]) -> _Stored:
    optional, wide = ([i for i, (kind, _) in enumerate(fields) if kind == of] for of in (_OPTIONAL, _WIDE))
    return _Stored(optional, wide, [(i, size) for i, (kind, size) in enumerate(fields) if kind == _TEXT])


def _packer(slot: int, layout: struct.Struct, stored: _Stored) -> Pack:
    """A packer for the training thread, which calls it in every step: replacing a few values of a list costs
    no more than naming all fields by hand, and makes no bytes that only have to be copied.
    """
    optional, _, texts = stored
    wide = [(i, [None, _NONE_WIDE]) for i in stored.wide]
    size, length, pack_all = layout.size, layout.size - PREFIX.size, layout.pack_into
    pack_crc, crc32 = _CRC.pack_into, zlib.crc32

    def pack(memory: memoryview, offset: int, sequence: int, record: Any) -> None:
        values = list(record)
        for i in optional:
            if values[i] is None:
                values[i] = _NONE
        for i, last in wide:  # mostly that of the record before: the FLOPs of a step
            if values[i] is not last[0]:
                last[:] = values[i], _wide(values[i])
            values[i] = last[1]
        for i, room in texts:
            values[i] = fit_utf8(str(values[i]), room)
        start = offset + CRC_BYTES
        pack_all(memory, start, slot, length, sequence, *values)
        pack_crc(memory, offset, crc32(memory[start : start + size]))

    return pack


def _unpacker(layout: struct.Struct, stored: _Stored, make: _Make) -> Unpack:
    optional, wide, texts = stored

    def unpack(body: bytes) -> Any:
        values: list[Any] = list(layout.unpack(body)[_PREFIX_FIELDS:])
        for i in optional:
            if values[i] == _NONE:
                values[i] = None
        for i in wide:
            values[i] = None if values[i] == _NONE_WIDE else int.from_bytes(values[i], "little", signed=True)
        for i, _ in texts:
            values[i] = values[i].rstrip(b"\0").decode()
        return make(values)

    return unpack


def _with_tail(slot: int, layouts: list[struct.Struct], make: _Make) -> tuple[Pack, Unpack]:
    """`layouts[n]` is for n values in the last field."""
    packers = [(each.pack_into, each.size) for each in layouts]
    shortest = layouts[0].size
    pack_crc, crc32 = _CRC.pack_into, zlib.crc32

    def pack(memory: memoryview, offset: int, sequence: int, record: Any) -> None:
        tail = record[-1]
        pack_all, size = packers[len(tail)]
        start = offset + CRC_BYTES
        pack_all(memory, start, slot, size - PREFIX.size, sequence, *record[:-1], *tail)
        pack_crc(memory, offset, crc32(memory[start : start + size]))

    def unpack(body: bytes) -> Any:
        count = (len(body) - shortest) // _INTEGER_BYTES
        values = layouts[count].unpack(body)[_PREFIX_FIELDS:]
        end = len(values) - count
        return make((*values[:end], values[end:]))

    return pack, unpack


def _wide(value: int | None) -> bytes:
    return _NONE_WIDE if value is None else value.to_bytes(_WIDE_BYTES, "little", signed=True)


def fit_utf8(text: str, size: int) -> bytes:
    """At most `size` bytes of UTF-8 that end between two characters."""
    encoded = text.encode("utf-8", "backslashreplace")[:size]
    return encoded.decode("utf-8", "ignore").encode()
