"""What is packed is unpacked; what is damaged is refused, on the side of the client too."""

from __future__ import annotations

import random

import pytest

from flagscale_perf.rpc.arrays import Array, DType
from flagscale_perf.rpc.errors import InvalidMessage, Refused
from flagscale_perf.rpc.transport.header import Kind, Prefix, pack_prefix, read_prefix
from flagscale_perf.rpc.transport.packing import Packer, Sizes, Unpacker, first_frame

SIZES = Sizes(inline_bytes=100, arena_from_bytes=2**53, frames=True, most_bytes=1000)


def of(size: int) -> Array:
    return Array(DType.UINT8, (size,), memoryview(bytes(range(size % 256)) + bytes(size - size % 256)))


def message(packed) -> bytes:
    return first_frame(pack_prefix(Prefix(Kind.REPLY, packed.body_bytes, 1, 1, 0, 0, 0, 0)), packed)


def read(first: bytes, frames: list[memoryview]) -> tuple[list[Array], object]:
    unpacker = Unpacker(SIZES.most_bytes)
    checked = unpacker.body(first, read_prefix(first))
    return unpacker.arrays(checked, first, frames, None), checked.arguments


@pytest.mark.parametrize("arguments", [{}, {"step": 3}])
def test_the_second_message_of_a_kind_is_the_first_one_again(arguments) -> None:
    packer = Packer(SIZES)
    arrays = [of(5), of(0), of(300), of(100), of(101)]
    packed = [packer.pack(arrays, arguments, None) for _ in range(3)]
    assert len({message(each) for each in packed}) == 1
    assert [len(frame) for frame in packed[2].frames] == [300, 101]
    assert read(message(packed[2]), packed[2].frames) == (arrays, arguments)


def test_what_was_worked_out_once_is_still_checked() -> None:
    packer = Packer(SIZES)
    for _ in range(2):
        with pytest.raises(
            Refused, match="1200 bytes of arrays in one message; at most 1000 are allowed here"
        ):
            packer.pack([of(600), of(600)], {}, None)
    packer.pack([of(8)], {}, None)
    with pytest.raises(Exception, match="takes 8 bytes, and its data has 9 items"):
        packer.pack([of(9)._replace(shape=(8,))], {}, None)


def test_ten_thousand_damaged_replies_are_read_or_refused() -> None:
    chance = random.Random(14)
    packed = Packer(SIZES).pack([of(5), of(300), of(90)], {"step": 1, "of": [1, 2]}, None)
    good, refused = message(packed), 0
    for _ in range(10_000):
        damaged = bytearray(good)
        for _ in range(chance.choice((1, 1, 2, 20))):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            arrays, _ = read(bytes(damaged), packed.frames[: chance.choice((0, 1, 1, 1))])
        except (InvalidMessage, Refused):
            refused += 1
        else:
            assert sum(len(array.data) for array in arrays) <= SIZES.most_bytes
    assert 1000 < refused < 10_000


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({f"a{n}": n for n in range(257)}, "257 arguments in one message; at most 256 go: use an array"),
        ({"n" * 257: 1}, "an argument's name of 257 letters; at most 256 go: 'nnnn"),
    ],
)
def test_more_than_the_other_side_takes_is_refused_before_it_is_sent(arguments, says) -> None:
    with pytest.raises(Refused, match=says):
        Packer(SIZES).pack([], arguments, None)
    most = {f"{n:256}": n for n in range(200)}
    assert read(message(Packer(SIZES).pack([], most, None)), []) == ([], most)
