"""Text that cannot move a cursor, numbers that keep their digits."""

from __future__ import annotations

import io
import sys

import pytest

from flagscale_perf.spine.units import for_stdout, number, printable


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


@pytest.mark.parametrize(
    ("encoding", "errors", "shown"),
    [
        ("utf-8", "strict", "日志/é\\udce6"),
        ("utf-8", "surrogateescape", "日志/é\udce6"),
        ("ascii", "strict", "\\u65e5\\u5fd7/\\xe9\\udce6"),
        ("latin-1", "strict", "\\u65e5\\u5fd7/é\\udce6"),
        ("ascii", "backslashreplace", "日志/é\udce6"),
    ],
)
def test_what_stdout_cannot_encode_is_spelled_out(
    monkeypatch, encoding: str, errors: str, shown: str
) -> None:
    stdout = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=errors)
    monkeypatch.setattr(sys, "stdout", stdout)
    text = for_stdout("日志/é\udce6")
    print(text)
    assert text == shown
