"""No text can move a cursor, reorder a line or begin another one."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf.spine.units import number, printable

ANY = st.text(st.characters() | st.sampled_from("\x1b\x9b\x07\r\n\u202e\u2066\u200f\u061c\u2028\x85\ud800"))


@given(ANY)
def test_nothing_printable_controls_or_reorders(text: str) -> None:
    shown = printable(text)
    assert shown.splitlines() in ([], [shown])
    shown.encode()
    for char in shown:
        assert unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp")
        assert unicodedata.bidirectional(char) not in (
            "LRE",
            "RLE",
            "LRO",
            "RLO",
            "PDF",
            "LRI",
            "RLI",
            "FSI",
            "PDI",
        )


@given(ANY)
def test_what_was_harmless_stays_as_it_was_and_twice_is_once(text: str) -> None:
    assert printable(printable(text)) == printable(text)
    if text.isprintable():
        assert printable(text) == text


@given(ANY, ANY)
def test_pieces_are_harmless_where_the_whole_is(one: str, other: str) -> None:
    assert printable(one + other) == printable(one) + printable(other)


@given(
    st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**40), 10**40),
    st.integers(0, 6),
)
def test_a_number_is_one_word(value: float | None, decimals: int) -> None:
    shown = number(value, decimals)
    assert not set(shown) - set("-+.e0123456789")
    if value is None:
        assert shown == "-"
    else:
        assert float(shown) == pytest.approx(value, rel=0.005, abs=0.5001 * 10**-decimals)
