"""Arrays as calls carry them, the messages, and where the arrays of one are.

The first frame of a message is msgpack of a declared type, at most `MOST_HEADER_BYTES` long, and believed
only after msgspec has validated types and bounds. Arrays are not in it: each is in the caller's slot of
shared memory, in a frame of its own, or (the baseline) packed with the others into one frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from math import prod
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgpack
import msgspec
from msgspec import Meta

from flagscale_perf.rpc.dtypes import DType
from tensor_rpc.errors import InvalidMessage, Refused, RpcError
from tensor_rpc.memory import Slot
from tensor_rpc.options import Value

PROTOCOL = 5
MOST_HEADER_BYTES = 65536
MOST_PARTS = 64
Frame: TypeAlias = bytes | memoryview
Told: TypeAlias = tuple[int, int, int]  # by a reply, as `told_apart` takes it
NOTHING_TOLD: Told = (-1, -1, 0)
_ITEM_BYTES = {
    **dict.fromkeys((DType.FLOAT64, DType.INT64), 8),
    **dict.fromkeys((DType.FLOAT32, DType.INT32), 4),
    **dict.fromkeys((DType.FLOAT16, DType.BFLOAT16), 2),
    **dict.fromkeys((DType.UINT8, DType.BOOL), 1),
}


class Array(NamedTuple):
    """Items in C order, without gaps. `tensors` converts it to and from torch.

    Attributes:
        dtype: of an item.
        shape: () for a single item.
        data: flat, of format "B"; as many bytes as `byte_count` says.
    """

    dtype: DType
    shape: tuple[int, ...]
    data: memoryview


def byte_count(dtype: DType, shape: tuple[int, ...]) -> int:
    """Size of such an array in bytes."""
    return _ITEM_BYTES[dtype] * prod(shape)


class Place(IntEnum):
    """Where the bytes of an array are, where not in shared memory."""

    FRAME = -1  # the next frame
    PACKED = -2  # the next item of the one packed frame


Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Dimension = Annotated[int, Meta(ge=0, le=2**31)]
Name = Annotated[str, Meta(max_length=256)]
Method = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,23}\Z")]
Text = Annotated[str, Meta(max_length=49152)]
Values = Annotated[dict[Name, Value], Meta(max_length=256)]


class Part(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """One array; `offset` in the slot, or a `Place`."""

    dtype: DType
    shape: Annotated[tuple[Dimension, ...], Meta(max_length=8)]
    offset: Annotated[int, Meta(ge=-2, le=2**53)]


Parts = Annotated[tuple[Part, ...], Meta(max_length=MOST_PARTS)]


class Message(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=True):
    """The first frame; the types below."""


class Greeting(Message, frozen=True):
    """The client's first message. `machine` and `process` are what `endpoint.machine` and
    `getpid` say."""

    protocol: Count
    payload: Name
    max_message_bytes: Count
    machine: Name
    process: Count


class Memory(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Shared memory as the server's open file `descriptor`, which has this inode."""

    descriptor: Count
    inode: Count
    bytes: Count


class Welcome(Message, frozen=True):
    """The answer to it.

    Attributes:
        client: this connection's number at the server.
        epoch: of the server; another one after it was started again.
        device, dtype, description: as the server's options say.
        methods: names, each at the place of its number.
        max_message_bytes: of arrays in a call.
        slots: calls that may be under way.
        requests, replies: None where there is no shared memory.
    """

    protocol: Count
    client: Count
    epoch: Count
    process: Count
    machine: Name
    device: Name
    dtype: Name
    description: Text
    methods: Annotated[tuple[Method, ...], Meta(max_length=1024)]
    max_message_bytes: Count
    slots: Annotated[int, Meta(ge=1, le=8)]
    requests: Memory | None
    replies: Memory | None


class Ping(Message, frozen=True):
    """Answered with itself."""


class Call(Message, frozen=True):
    """A call of `method` by number. `ready_ns` is the caller's monotonic mark of sending it, 0 on another
    machine or in another container.
    """

    number: Count
    method: Count
    slot: Count
    ready_ns: Count
    parts: Parts
    arguments: Values


class Reply(Message, frozen=True):
    """The result of a call, and what the server says of its time, as `told_apart` takes it."""

    number: Count
    told: Told
    parts: Parts


class Failure(Message, frozen=True):
    """The call failed, or (number 0) the connection did. `status` is a `Status`."""

    number: Count
    told: Told
    status: Count
    kind: Name
    text: Text
    traceback: Text


class Bye(Message, frozen=True):
    """The client leaves."""


ToServer: TypeAlias = Greeting | Ping | Call | Bye
ToClient: TypeAlias = Welcome | Ping | Reply | Failure
encode = msgspec.msgpack.Encoder().encode
_to_server = msgspec.msgpack.Decoder(ToServer)
_to_client = msgspec.msgpack.Decoder(ToClient)


def for_server(first: bytes) -> ToServer:
    """A client's message. Raises `InvalidMessage`."""
    message: ToServer = _decoded(_to_server, first)
    return message


def for_client(first: bytes) -> ToClient:
    """A server's message. Raises `InvalidMessage`."""
    message: ToClient = _decoded(_to_client, first)
    return message


def _decoded(decoder: msgspec.msgpack.Decoder[Any], first: bytes) -> Any:
    if len(first) > MOST_HEADER_BYTES:
        raise InvalidMessage(f"a header of {len(first)} bytes; at most {MOST_HEADER_BYTES} are read")
    try:
        return decoder.decode(first)
    except (ValueError, RecursionError) as error:  # bad UTF-8 is a ValueError, as msgspec's own errors are
        raise InvalidMessage(f"a message that cannot be read: {error}") from None


def header(message: Message) -> bytes:
    """The first frame. Raises `Refused` above its limit, RpcError for arguments of other types."""
    try:
        first = encode(message)
    except (TypeError, OverflowError, UnicodeEncodeError) as error:
        raise RpcError(f"arguments hold what calls do not carry: {error}") from None
    if len(first) > MOST_HEADER_BYTES:
        raise Refused(f"arguments and shapes take {len(first)} bytes; at most {MOST_HEADER_BYTES} go")
    return first


class Packed(NamedTuple):
    """The arrays of a message, as they travel.

    Attributes:
        frames: what follows the first one.
        total, shared: bytes of all arrays, and of those in shared memory.
        largest: `DType` of the largest; 0 without arrays.
    """

    parts: tuple[Part, ...]
    frames: list[Frame]
    total: int
    shared: int
    largest: int


def pack(arrays: Sequence[Array], slot: Slot | None, packs: bool, most_bytes: int) -> Packed:
    """Places the arrays: in the slot where there is one and room, else as frames, or in one frame if `packs`.
    Raises `Refused` above a limit, RpcError for an array that is invalid in itself.
    """
    total = sum(len(array.data) for array in arrays)
    if len(arrays) > MOST_PARTS:
        raise Refused(f"{len(arrays)} arrays in one message; at most {MOST_PARTS} go")
    check_total(total, most_bytes)
    frames: list[Frame] = []
    parts, shared = [], 0
    for dtype, shape, data in arrays:
        if len(data) != byte_count(dtype, shape):
            raise RpcError(
                f"an array of {dtype.name} {shape} takes {byte_count(dtype, shape)} bytes, and its data has "
                f"{len(data)} items of format {data.format!r}; pass flat bytes, as array_of does"
            )
        offset = None if slot is None else slot.store(data)
        if offset is None:
            offset = Place.PACKED if packs else Place.FRAME
            frames.append(data)
        else:
            shared += len(data)
        parts.append(Part(dtype, shape, int(offset)))
    largest = int(max(arrays, key=lambda each: len(each.data)).dtype) if arrays else 0
    if packs and frames:
        frames = [msgpack.packb([bytes(frame) for frame in frames])]
    return Packed(tuple(parts), frames, total, shared, largest)


def check_total(total: int, most_bytes: int) -> None:
    """Raises `Refused` above the limit."""
    if total > most_bytes:
        raise Refused(
            f"{total} bytes of arrays in one message; at most {most_bytes} are allowed here: raise "
            "max_message_bytes, or send less at once"
        )


class Unpacked(NamedTuple):
    """The arrays of a message, as views of it or of the slot, read-only; and their bytes as in `Packed`."""

    arrays: list[Array]
    total: int
    shared: int
    largest: int


def unpack(parts: Sequence[Part], frames: Sequence[Frame], slot: Slot | None, most_bytes: int) -> Unpacked:
    """Raises `InvalidMessage` if an array is not where it is said to be, `Refused` above the limit."""
    sizes = [byte_count(part.dtype, part.shape) for part in parts]
    check_total(sum(sizes), most_bytes)
    left = list(_unpacked(frames) if any(part.offset == Place.PACKED for part in parts) else frames)
    arrays, shared = [], 0
    for part, size in zip(parts, sizes, strict=True):
        if part.offset < 0:
            if not left or len(left[0]) != size:
                raise InvalidMessage(f"{len(left[0]) if left else 'no'} bytes for an array of {size}")
            data = memoryview(left.pop(0))
        elif slot is None:
            raise InvalidMessage("an array in shared memory, which this connection does not have")
        else:
            data, shared = slot.view(part.offset, size), shared + size
        arrays.append(Array(part.dtype, part.shape, data))
    if left:
        raise InvalidMessage(f"{len(left)} frames more than arrays")
    largest = int(max(arrays, key=lambda each: len(each.data)).dtype) if arrays else 0
    return Unpacked(arrays, sum(sizes), shared, largest)


def _unpacked(frames: Sequence[Frame]) -> list[bytes]:
    try:
        (packed,) = frames
        items = msgpack.unpackb(packed)
    except (ValueError, msgpack.UnpackException) as error:
        raise InvalidMessage(f"arrays that are not one packed frame: {error}") from None
    if not isinstance(items, list) or not all(isinstance(item, bytes) for item in items):
        raise InvalidMessage("a packed frame that is no list of bytes")
    return items


def told_apart(send_ns: int, whole_ns: int, told: Told) -> tuple[int, int, int | None, int | None]:
    """Send, wait, queue and server of a call. A caller that loses the processor inside `send` sees it return
    late: sending ends when the server has the call, and where the clocks differ, so early that the server's
    work has room behind it. What has none at all is not believed: queue and server are None then.

    Args:
        send_ns: until `send` returned, from the moment the message was ready.
        whole_ns: from that moment until the reply was there.
        told: by the server: how long the call waited for others there, how long the server worked, and how
            long after that moment it began; 0 where the clocks differ.
    """
    waited_ns, worked_ns, began_ns = told
    if worked_ns < 0 or began_ns + worked_ns > whole_ns or (began_ns and waited_ns > began_ns):
        return send_ns, whole_ns - send_ns, None, None
    if not began_ns:
        send_ns = min(send_ns, whole_ns - worked_ns)
        return send_ns, whole_ns - send_ns - worked_ns, None, worked_ns
    send_ns = min(send_ns, began_ns - waited_ns)
    return send_ns, whole_ns - send_ns - waited_ns - worked_ns, waited_ns, worked_ns
