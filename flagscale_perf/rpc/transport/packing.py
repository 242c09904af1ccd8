"""Arrays into messages and back: one code path, which places each array by its size."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple, Protocol

from flagscale_perf.rpc.arrays import Array, DType, byte_count
from flagscale_perf.rpc.errors import InvalidMessage, Refused, RpcError
from flagscale_perf.rpc.options import Arguments
from flagscale_perf.rpc.transport.header import (
    CALL,
    MOST_ARGUMENTS,
    MOST_BODY_BYTES,
    MOST_INLINE_BYTES,
    MOST_NAME,
    MOST_PARTS,
    PREFIX_BYTES,
    Checked,
    Place,
    Prefix,
    check,
    encode,
    padding,
)

MOST_REMEMBERED = 256
_Step = tuple[int, int, int, bytes]  # size, place, offset, padding
_new = tuple.__new__  # half the time of a NamedTuple's own constructor
INLINE, FRAME, SHARED = int(Place.INLINE), int(Place.FRAME), int(Place.SHARED)


class Slot(Protocol):
    """A share of shared memory, for one call or one reply."""

    @property
    def plain(self) -> bool:
        """Whether arrays are simply copied in, one after another."""
        ...

    def begin(self, call: int) -> None:
        """Prepares for the arrays of this call."""
        ...

    def put(self, offset: int, data: memoryview) -> None:
        """Copies an array to an offset from an earlier `store` of the same layout."""
        ...

    def lend(self, size: int) -> memoryview | None:
        """Memory for an array that is written in place; None if there is none."""
        ...

    def find(self, data: memoryview) -> int | None:
        """Its offset if it is in this slot already; otherwise None."""
        ...

    def store(self, data: memoryview) -> int | None:
        """Copies it in and returns its offset; None if it does not fit."""
        ...

    def view(self, offset: int, size: int) -> memoryview:
        """The bytes there. Raises `InvalidMessage` if they are not entirely inside."""
        ...

    def release(self) -> None:
        """Unmaps the memory."""
        ...


class Sizes(NamedTuple):
    """Where arrays of which size go.

    Attributes:
        inline_bytes: up to this size into the first frame.
        arena_from_bytes: from this size on into shared memory.
        frames: whether the link carries frames.
        most_bytes: of all arrays.
    """

    inline_bytes: int
    arena_from_bytes: int
    frames: bool
    most_bytes: int


class Packed(NamedTuple):
    """A message without its prefix.

    Attributes:
        body_bytes: of the header's body.
        head: the body, padded where inline arrays follow.
        inline: these, each padded.
        frames: what follows the first frame.
        total, shared: bytes of all arrays, and of those in shared memory.
        parts: for each array its type, shape, place and offset.
        largest: type of the largest array, 0 without arrays.
    """

    body_bytes: int
    head: bytes
    inline: list[bytes | memoryview]
    frames: list[memoryview]
    total: int
    shared: int
    parts: list[tuple[int, tuple[int, ...], int, int]]
    largest: int


class _Layout:
    """The offsets of the arrays of one message."""

    def __init__(self, sizes: Sizes, slot: Slot | None) -> None:
        self.sizes = sizes
        self.slot = slot
        self.inline: list[bytes | memoryview] = []
        self.frames: list[memoryview] = []
        self.at = 0
        self.shared = 0

    def place(self, data: memoryview, size: int) -> tuple[int, int]:
        slot, sizes = self.slot, self.sizes
        if slot is not None and (offset := slot.find(data)) is not None:
            self.shared += size
            return SHARED, offset
        if size <= sizes.inline_bytes and self.at + size <= MOST_INLINE_BYTES:
            return INLINE, self._append(data, size)
        if slot is not None and (size >= sizes.arena_from_bytes or not sizes.frames):
            offset = slot.store(data)
            if offset is not None:
                self.shared += size
                return SHARED, offset
        if sizes.frames:
            self.frames.append(data)
            return FRAME, len(self.frames) - 1
        raise Refused(
            f"an array of {size} bytes fits neither the message nor the rest of the shared memory, and this "
            "link carries nothing else; start the server with a larger arena_bytes, or use control='zeromq'"
        )

    def _append(self, data: memoryview, size: int) -> int:
        offset = self.at
        self.inline.append(data)
        gap = padding(size)
        if gap:
            self.inline.append(bytes(gap))
        self.at = offset + size + gap
        return offset


def pack(arrays: Sequence[Array], arguments: Arguments, sizes: Sizes, slot: Slot | None) -> Packed:
    """Raises `Refused` if limits forbid it, `RpcError` if an array is invalid in itself."""
    layout = _Layout(sizes, slot)
    parts = []
    total = 0
    if len(arrays) > MOST_PARTS:
        raise Refused(f"{len(arrays)} arrays in one message; at most {MOST_PARTS} go")
    for dtype, shape, data in arrays:
        size = len(data)
        if size != dtype.bytes * prod(shape):
            raise RpcError(_wrong_size(Array(dtype, shape, data)))
        total += size
        if total > sizes.most_bytes:
            raise Refused(too_large(sum(len(each.data) for each in arrays), sizes.most_bytes))
        place, offset = layout.place(data, size)
        parts.append((int(dtype), shape, place, offset))
    body = _encode(parts, arguments)
    head = _padded(body) if layout.inline else body
    return Packed(
        len(body), head, layout.inline, layout.frames, total, layout.shared, parts, largest_of(arrays)
    )


def largest_of(arrays: Sequence[Array]) -> int:
    """The `DType` of the largest array, 0 without arrays."""
    return int(max(arrays, key=lambda each: len(each.data)).dtype) if arrays else 0


def _encode(parts: Sequence[tuple[int, tuple[int, ...], int, int]], arguments: Arguments) -> bytes:
    if len(arguments) > MOST_ARGUMENTS:
        raise Refused(f"{len(arguments)} arguments in one message; at most {MOST_ARGUMENTS} go: use an array")
    for name in arguments:
        if len(name) > MOST_NAME:
            raise Refused(f"an argument's name of {len(name)} letters; at most {MOST_NAME} go: {name[:40]!r}")
    try:
        body = encode((parts, arguments))
    except TypeError as error:
        raise RpcError(f"arguments hold what calls do not carry: {error}") from None
    if len(body) > MOST_BODY_BYTES:
        raise Refused(
            f"arguments and shapes take {len(body)} bytes; at most {MOST_BODY_BYTES} go: use an array"
        )
    return body


def _padded(body: bytes) -> bytes:
    return body + bytes(padding(PREFIX_BYTES + len(body)))


class Packer:
    """Packs the messages of one connection. The layout follows from types and shapes, so it is worked out
    once for each combination.

    Attributes:
        sizes: that decide.
    """

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self._known: dict[tuple[tuple[DType, tuple[int, ...]], ...], tuple[Packed, list[_Step]]] = {}

    def pack(self, arrays: Sequence[Array], arguments: Arguments, slot: Slot | None) -> Packed:
        """As the function `pack`."""
        if slot is not None and not slot.plain:
            return pack(arrays, arguments, self.sizes, slot)
        key = tuple([array[:2] for array in arrays])
        known = self._known.get(key)
        if known is None:
            packed = pack(arrays, arguments, self.sizes, slot)
            self._remember(key, packed, arrays)
            return packed
        model, steps = known
        inline: list[bytes | memoryview] = []
        frames: list[memoryview] = []
        for (_, _, data), (size, place, offset, gap) in zip(arrays, steps):  # noqa: B905 - alike, by the key
            if len(data) != size:
                raise RpcError(_first_wrong(arrays))
            if place == INLINE:
                inline.append(data)
                if gap:
                    inline.append(gap)
            elif place == FRAME:
                frames.append(data)
            else:
                assert slot is not None
                slot.put(offset, data)
        body_bytes, head, _, _, total, shared, parts, largest = model
        if arguments:
            body = _encode(parts, arguments)
            body_bytes, head = len(body), _padded(body) if inline else body
        return _new(Packed, (body_bytes, head, inline, frames, total, shared, parts, largest))

    def _remember(
        self, key: tuple[tuple[DType, tuple[int, ...]], ...], packed: Packed, arrays: Sequence[Array]
    ) -> None:
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        steps = []
        for array, (_, _, place, offset) in zip(arrays, packed.parts, strict=True):
            size = len(array.data)
            steps.append((size, place, offset, bytes(padding(size))))
        body = _encode(packed.parts, {})
        head = _padded(body) if packed.inline else body
        self._known[key] = (packed._replace(body_bytes=len(body), head=head, inline=[], frames=[]), steps)


def _first_wrong(arrays: Sequence[Array]) -> str:
    return next(_wrong_size(each) for each in arrays if len(each.data) != byte_count(each.dtype, each.shape))


def _wrong_size(array: Array) -> str:
    return (
        f"an array of {array.dtype.name} {array.shape} takes {byte_count(array.dtype, array.shape)} bytes, "
        f"and its data has {len(array.data)} items of format {array.data.format!r}; pass flat bytes, as "
        "array_of does"
    )


def too_large(size: int, most: int) -> str:
    """The error text for a message above the limit."""
    return (
        f"{size} bytes of arrays in one message; at most {most} are allowed here: raise max_message_bytes, "
        "or send less at once"
    )


def first_frame(prefix: bytes, packed: Packed) -> bytes:
    """Prefix, body and inline arrays as one piece."""
    inline = packed.inline
    return b"".join((prefix, packed.head, *inline)) if inline else prefix + packed.head


class Unpacker:
    """Reads what `pack` wrote, and validates all of it."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._remembered: dict[bytes, Checked] = {}

    def body(self, first: bytes | memoryview, prefix: Prefix) -> Checked:
        """The checked body. Raises `InvalidMessage`, or `Refused` above the limit."""
        raw = bytes(first[PREFIX_BYTES : PREFIX_BYTES + prefix[1]])
        known = self._remembered.get(raw)
        if known is not None:
            return known
        checked = check(CALL.decode(first, prefix), len(raw))
        if checked.total > self._most_bytes:
            raise Refused(too_large(checked.total, self._most_bytes))
        # Arguments are passed on, and may be changed by their receiver.
        if not checked.arguments and len(raw) <= 1024:
            if len(self._remembered) >= MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[raw] = checked._replace(arguments={})
        return checked

    def arrays(
        self, checked: Checked, first: bytes | memoryview, frames: Sequence[memoryview], slot: Slot | None
    ) -> list[Array]:
        """Views of the message, which is read-only, and of the slot. Raises `InvalidMessage` if one is not
        entirely inside.
        """
        parts, _, _, _, start, inline_bytes, behind, shared_end = checked
        if behind != len(frames):
            raise InvalidMessage(f"{len(frames)} frames behind a header that names {behind}")
        if shared_end and slot is None:
            raise InvalidMessage("an array in shared memory, which this connection does not have")
        if inline_bytes and start + inline_bytes > len(first):
            there = max(0, len(first) - start)
            raise InvalidMessage(f"arrays of {inline_bytes} bytes behind the header, where {there} are")
        inline = memoryview(first)
        found = []
        for dtype, shape, place, offset, size in parts:
            if place == INLINE:
                offset += start
                data = inline[offset : offset + size]
            elif place == FRAME:
                data = frames[offset]
                if len(data) != size:
                    raise InvalidMessage(f"a frame of {len(data)} bytes for an array of {size}")
            else:
                assert slot is not None
                data = slot.view(offset, size)
            found.append(_new(Array, (dtype, shape, data)))
        return found
