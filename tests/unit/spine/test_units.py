"""Text that cannot move a cursor, numbers that keep their digits."""

from __future__ import annotations

import pytest

from flagscale_perf.spine.units import number, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ümläut, 中文, 🙂", "plain, ümläut, 中文, 🙂"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc\rd\0", "a\\x0ab\\x09c\\x0dd\\x00"),
        ("\x7f\x9b31m", "\\x7f\\x9b31m"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("line\u2028paragraph\u2029", "line\\u2028paragraph\\u2029"),
        ("\ud800", "\\ud800"),
    ],
)
def test_unsafe_characters_are_spelled_out(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (None, 2, "-"),
        (0.0, 2, "0.00"),
        (125.344, 2, "125.34"),
        (1048576.04, 0, "1048576"),
        (1.0, 1, "1.0"),
        (0.012345, 2, "0.0123"),
        (0.5, 1, "0.500"),
        (0.0000012345, 2, "1.23e-06"),
        (-0.25, 2, "-0.250"),
    ],
)
def test_a_number_below_one_keeps_three_digits(value: float | None, decimals: int, text: str) -> None:
    assert number(value, decimals) == text
