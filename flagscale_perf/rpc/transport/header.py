"""The wire format: a prefix of fixed size, a typed body, and small arrays behind them.

    prefix (56 bytes) | body (msgpack, typed) | padding to 16 | inline arrays, each padded to 16

That is the first frame; over ZeroMQ larger arrays follow, one a frame, and those in shared memory do not
travel at all. What differs in every call is in the prefix, so bodies repeat: a checked one is cached, and the
same bytes need no second check. A body is trusted only after msgspec has validated its types and bounds and
`check` has found every array inside the memory it names.
"""

from __future__ import annotations

import sys
from enum import IntEnum
from struct import Struct as Layout
from typing import Annotated, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from flagscale_perf.rpc.arrays import DType, byte_count
from flagscale_perf.rpc.errors import InvalidMessage
from flagscale_perf.rpc.options import Received

MAGIC = 0x5046
PROTOCOL = 2
PREFIX = Layout("<HBBIQQHHIQQQ")
PREFIX_BYTES = PREFIX.size
_unpack = PREFIX.unpack_from
MOST_BODY_BYTES = 65536
MOST_INLINE_BYTES = 65536
MOST_PARTS = 64
MOST_ARGUMENTS = 256
MOST_NAME = 256  # letters
ALIGNMENT = 16
MOST_FIRST_BYTES = PREFIX.size + MOST_BODY_BYTES + MOST_INLINE_BYTES + ALIGNMENT * (MOST_PARTS + 1)
BYTE_ORDER = sys.byteorder
_new = tuple.__new__  # half the time of a NamedTuple's own constructor


class Kind(IntEnum):
    """What a message is."""

    HELLO = 1  # client: its identity and its wishes
    WELCOME = 2  # server: its identity and its limits
    ATTACH = 3  # client, on the unix socket: which connection it belongs to
    ATTACHED = 4  # server: the descriptors come with it
    SETTLE = 5  # client: sizes from which arrays are inline or shared
    PING = 6  # either; arrays in it are checked and dropped
    CALL = 7
    REPLY = 8
    FAILURE = 9  # server: the method failed, or the message was refused
    BYE = 10  # client: closes the connection


LAST_KIND = int(Kind.BYE)


class Place(IntEnum):
    """Where the bytes of an array are."""

    INLINE = 0  # offset: from the end of the padded body
    FRAME = 1  # offset: how many frames are before it
    SHARED = 2  # offset: in the slot


class Prefix(NamedTuple):
    """The part of a message that differs in every call.

    Attributes:
        kind: a `Kind`.
        body_bytes: how long the body is.
        epoch: of the server; 0 before it is known.
        call: number of the call on its connection; increases. It is also the generation of the slot.
        code: of a call the method's number, of a reply or failure a `Status`.
        slot: the share of shared memory that the call and its reply may use. Each call under way has its own.
        first_ns: of a call the caller's monotonic mark of sending it, 0 where the clocks are not the same;
            of a reply how long it waited at the server.
        second_ns: of a reply, how long the server worked on it.
        third_ns: of a reply, how long after the caller's mark the server began; 0 where the clocks differ.
    """

    kind: int
    body_bytes: int
    epoch: int
    call: int
    code: int
    slot: int
    first_ns: int
    second_ns: int
    third_ns: int = 0


Count = Annotated[int, Meta(ge=0, le=2**53)]
Dimension = Annotated[int, Meta(ge=0, le=2**31)]
Text = Annotated[str, Meta(max_length=MOST_NAME)]
LongText = Annotated[str, Meta(max_length=49152)]


class Part(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """One array."""

    dtype: DType
    shape: Annotated[tuple[Dimension, ...], Meta(max_length=8)]
    place: Place
    offset: Count


Parts = Annotated[tuple[Part, ...], Meta(max_length=MOST_PARTS)]


class CallBody(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Body of CALL, REPLY and PING."""

    parts: Parts
    arguments: Annotated[dict[Text, Received], Meta(max_length=MOST_ARGUMENTS)]


class FailureBody(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Body of FAILURE."""

    kind: Text
    text: LongText
    traceback: LongText


class HelloBody(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Body of HELLO."""

    protocol: Count
    byte_order: Text
    max_message_bytes: Count
    shared: bool
    unix: bool
    seal: bool
    model: Text | None
    clock: Text


class WelcomeBody(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Body of WELCOME."""

    protocol: Count
    byte_order: Text
    client: Count
    process: Count
    device: Text
    dtype: Text
    model: Text
    description: LongText
    methods: Annotated[tuple[Text, ...], Meta(max_length=1024)]
    max_message_bytes: Count
    arena_bytes: Count
    slots: Annotated[int, Meta(ge=1, le=8)]
    token: Annotated[bytes, Meta(max_length=32)]
    socket: Text
    same_clock: bool


class AttachBody(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Body of ATTACH: the secret from WELCOME."""

    client: Count
    token: Annotated[bytes, Meta(max_length=32)]


class AttachedBody(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Body of ATTACHED."""

    arena_bytes: Count
    key: Annotated[bytes, Meta(max_length=64)]


class SettleBody(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Body of SETTLE."""

    inline_bytes: Annotated[int, Meta(ge=0, le=MOST_INLINE_BYTES)]
    arena_from_bytes: Count


B = TypeVar("B", bound=msgspec.Struct)


class Codec(Generic[B]):
    """Encodes and decodes bodies of one type."""

    def __init__(self, body: type[B]) -> None:
        self._decoder = msgspec.msgpack.Decoder(body)

    def decode(self, first: bytes | memoryview, prefix: Prefix) -> B:
        """Raises `InvalidMessage`."""
        try:
            return self._decoder.decode(memoryview(first)[PREFIX.size : PREFIX.size + prefix.body_bytes])
        except (
            ValueError,
            RecursionError,
        ) as error:  # bad UTF-8 is a ValueError, as msgspec's own errors are
            raise InvalidMessage(f"a {Kind(prefix.kind).name} that cannot be read: {error}") from None


CALL = Codec(CallBody)
FAILURE = Codec(FailureBody)
HELLO = Codec(HelloBody)
WELCOME = Codec(WelcomeBody)
ATTACH = Codec(AttachBody)
ATTACHED = Codec(AttachedBody)
SETTLE = Codec(SettleBody)
encode = msgspec.msgpack.Encoder().encode
EMPTY_BODY = encode(((), {}))


def padding(size: int) -> int:
    """Number of bytes up to the next aligned offset."""
    return -size % ALIGNMENT


def message(prefix: Prefix, body: bytes) -> bytes:
    """A first frame without arrays; `prefix.body_bytes` is ignored."""
    return pack_prefix(prefix._replace(body_bytes=len(body))) + body


def pack_prefix(prefix: Prefix) -> bytes:
    """The prefix as bytes on the wire."""
    kind, body_bytes, epoch, call, code, slot, *marks = prefix
    return PREFIX.pack(MAGIC, PROTOCOL, kind, body_bytes, epoch, call, code, slot, 0, *marks)


def read_prefix(first: bytes | memoryview) -> Prefix:
    """Raises `InvalidMessage` if the message is not of this protocol, or claims more bytes than the frame
    has.
    """
    there = len(first)
    if PREFIX_BYTES <= there <= MOST_FIRST_BYTES:
        magic, protocol, kind, size, epoch, call, code, slot, zero, *marks = _unpack(first)
        is_ours = magic == MAGIC and protocol == PROTOCOL and not zero and 1 <= kind <= LAST_KIND
        if is_ours and size <= MOST_BODY_BYTES and PREFIX_BYTES + size <= there:
            return _new(Prefix, (kind, size, epoch, call, code, slot, *marks))
    raise InvalidMessage(_what_is_wrong(first))


def _what_is_wrong(first: bytes | memoryview) -> str:
    there = len(first)
    if not PREFIX_BYTES <= there <= MOST_FIRST_BYTES:
        return f"a message of {there} bytes; a first frame has {PREFIX_BYTES} to {MOST_FIRST_BYTES}"
    magic, protocol, kind, size, *_, zero, _, _, _ = _unpack(first)
    if magic != MAGIC or zero:
        return f"a message that begins with {bytes(first[:8])!r}: not this protocol"
    if protocol != PROTOCOL:
        return f"protocol {protocol}; this side speaks {PROTOCOL}: use the same version on both"
    if not 1 <= kind <= LAST_KIND:
        return f"a message of kind {kind}, which there is not"
    return f"a header that claims {size} bytes in a message of {there}"


class Checked(NamedTuple):
    """A body that has been validated.

    Attributes:
        parts: with the size of each.
        arguments: a mapping of its own for each call.
        total: bytes of all arrays.
        inline_start: where the inline arrays begin in the first frame.
        inline_end: how many bytes they take there.
        frames: how many frames must follow.
        shared_end: bytes of the slot that are used.
    """

    parts: tuple[tuple[DType, tuple[int, ...], int, int, int], ...]
    arguments: dict[str, Received]
    total: int
    shared: int
    inline_start: int
    inline_end: int
    frames: int
    shared_end: int


def check(body: CallBody, body_bytes: int) -> Checked:
    """Where the arrays are, by arithmetic alone; the user of the result compares it with the actual memory.
    Raises `InvalidMessage`.
    """
    parts, total, shared, inline_end, frames, shared_end = [], 0, 0, 0, 0, 0
    for part in body.parts:
        size = byte_count(part.dtype, part.shape)
        total += size
        if part.place is Place.INLINE:
            inline_end = max(inline_end, part.offset + size)
        elif part.place is Place.SHARED:
            shared += size
            shared_end = max(shared_end, part.offset + size)
        elif part.offset != frames:
            raise InvalidMessage(f"an array in frame {part.offset} where frame {frames} comes next")
        else:
            frames += 1
        parts.append((part.dtype, part.shape, int(part.place), part.offset, size))
    start = PREFIX_BYTES + body_bytes
    start += padding(start)
    return Checked(tuple(parts), body.arguments, total, shared, start, inline_end, frames, shared_end)
