"""How records lie in a slot: bytes by hand, and types that cannot be stored."""

from __future__ import annotations

import zlib
from typing import Annotated, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf.spine.slots import CRC_BYTES, PREFIX, SLOT_BYTES, Bytes, Layout, Wide, fit_utf8

pytestmark = pytest.mark.usefixtures("either_way")


class Small(NamedTuple):
    """One field of each sort."""

    count: int
    late_ns: int | None
    flops: Wide | None
    name: Annotated[str, Bytes(4)]


class Tail(NamedTuple):
    """A number and many."""

    count: int
    marks: tuple[int, ...]


def packed(layout: Layout, sequence: int, record: Any) -> bytes:
    """The slot that is stored, behind its checksum."""
    slot = bytearray(SLOT_BYTES)
    layout.packer()(memoryview(slot), 0, sequence, record)
    body = bytes(slot[CRC_BYTES : CRC_BYTES + PREFIX.size + int.from_bytes(slot[6:8], "little")])
    assert slot[:CRC_BYTES] == zlib.crc32(body).to_bytes(4, "little")
    return body


def test_the_bytes_of_a_record() -> None:
    layout = Layout(7, Small)
    body = packed(layout, 3, Small(1, None, 2, "äöü"))
    assert body == bytes.fromhex("07 00 2400 0300000000000000") + b"".join(
        (
            (1).to_bytes(8, "little"),
            (-(2**63)).to_bytes(8, "little", signed=True),
            (2).to_bytes(16, "little"),
            "äö".encode(),
        )
    )
    assert layout.unpack(body) == Small(1, None, 2, "äö")
    assert (layout.slot, layout.size, layout.room) == (7, 4 + len(body), 0)


def test_the_bytes_of_a_record_with_many_integers() -> None:
    layout = Layout(1, Tail)
    assert (layout.size, layout.room) == (16 + 8, (SLOT_BYTES - 24) // 8)
    body = packed(layout, 2, Tail(5, (-1, 6)))
    assert body[2:4] == (24).to_bytes(2, "little")
    assert body[12:] == b"".join(value.to_bytes(8, "little", signed=True) for value in (5, -1, 6))
    assert layout.unpack(body) == Tail(5, (-1, 6))
    assert layout.unpack(packed(layout, 2, Tail(5, ()))) == Tail(5, ())


def test_a_type_that_fills_a_slot_fits_and_one_with_a_field_more_does_not() -> None:
    fields: list[tuple[str, Any]] = [(f"n{n}", int) for n in range(30)]
    full: Any = NamedTuple("Full", fields)  # type: ignore[misc]
    layout = Layout(1, full)
    assert layout.size == SLOT_BYTES
    assert layout.unpack(packed(layout, 1, full(*range(30)))) == full(*range(30))
    larger: Any = NamedTuple("Larger", [*fields, ("more", int)])  # type: ignore[misc]
    with pytest.raises(TypeError, match="Larger takes 264 bytes of the 256 that a slot has"):
        Layout(1, larger)


@pytest.mark.parametrize(
    ("hint", "reason"),
    [
        (float, "field 'x' cannot be stored in the ring: <class 'float'>"),
        (str, "field 'x' cannot be stored in the ring: <class 'str'>"),
        (Annotated[str, Bytes(8)] | None, "field 'x' cannot be stored"),
        (Annotated[int, Bytes(4)], "field 'x' cannot be stored"),
        (int | str, "field 'x' cannot be stored"),
        (tuple[str, ...], "field 'x' cannot be stored"),
        (tuple[int, ...], "field 'x' can only be the last one of a record in the ring"),
    ],
)
def test_a_field_that_has_no_place_in_a_slot_is_refused(hint: Any, reason: str) -> None:
    odd: Any = NamedTuple("Odd", [("x", hint), ("count", int)])  # type: ignore[misc]
    with pytest.raises(TypeError) as caught:
        Layout(1, odd)
    assert str(caught.value).startswith(reason)


def test_only_plain_integers_go_before_many() -> None:
    odd: Any = NamedTuple("Odd", [("count", int | None), ("marks", tuple[int, ...])])  # type: ignore[misc]
    with pytest.raises(TypeError, match="Odd: only plain integers go before a field of many integers"):
        Layout(1, odd)


def test_what_is_no_named_tuple_is_refused() -> None:
    with pytest.raises(TypeError, match="int is stored in the ring, so it has to be a NamedTuple"):
        Layout(1, int)


@given(st.text(max_size=300))
def test_a_text_is_cut_between_two_characters(text: str) -> None:
    fitted = fit_utf8(text, 200)
    assert len(fitted) <= 200
    assert text.encode("utf-8", "backslashreplace").decode().startswith(fitted.decode())
    assert len(fitted) >= min(197, len(text.encode("utf-8", "backslashreplace")))


def test_a_wide_integer_is_stored_anew_when_it_is_another() -> None:
    layout = Layout(7, Small)
    for value in (2**70, 2**70, None, 3, 2**70):
        assert layout.unpack(packed(layout, 1, Small(1, 2, value, "x"))) == Small(1, 2, value, "x")
