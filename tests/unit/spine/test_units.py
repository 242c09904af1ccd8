"""Text that cannot move a cursor, numbers that keep their digits, and figures with their units."""

from __future__ import annotations

import io
import socket
import subprocess
import sys

import pytest

from flagscale_perf.spine.units import (
    PLAINLY,
    aligned,
    as_ms,
    as_s,
    duration,
    for_stdout,
    number,
    numbered,
    percent,
    printable,
    ranges,
    stretch,
)


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


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", "_:# #=-. . 3 xu"), ("gbk", "▁▃█ █▓-. · 3 ×u")])
def test_bars_and_signs_have_plain_characters(monkeypatch, encoding: str, shown: str) -> None:
    raw = io.BytesIO()
    stdout = io.TextIOWrapper(raw, encoding=encoding, errors=PLAINLY)
    print("▁▃█ █▓▒░ · 3\xa0×µ", end="", file=stdout, flush=True)
    assert raw.getvalue().decode(encoding) == shown
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    assert for_stdout("▁▃█ █▓▒░ · 3\xa0×µ") == shown


def test_a_line_goes_out_in_one_piece() -> None:
    """A socket of packets keeps each write apart."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    code = "from flagscale_perf.spine.units import print_line; print_line('one')"
    subprocess.run([sys.executable, "-u", "-c", code], stdout=theirs, check=True)
    theirs.close()
    with ours:
        assert [ours.recv(100), ours.recv(100)] == [b"one\n", b""]


def test_what_is_not_known_stays_unknown() -> None:
    assert (as_ms(None), as_s(None)) == (None, None)
    assert (percent(None), duration(None)) == ("-", "-")


def test_figures_with_their_units() -> None:
    assert (as_ms(12_500_000), as_s(2_500_000_000)) == (12.5, 2.5)
    assert (percent(0.3), percent(0.00123), percent(0.0)) == ("30.0 %", "0.123 %", "0.0 %")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (0.0125, "0.0125 s"),
        (119.94, "119.9 s"),
        (120, "2 min 00 s"),
        (3599.4, "59 min 59 s"),
        (3600, "1 h 00 min"),
        (25_500, "7 h 05 min"),
        (86_399, "23 h 59 min"),
        (86_400 * 3 + 3600 * 4, "3 d 04 h"),
    ],
)
def test_a_duration_has_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([3], "rank 3"),
        ([4, 5], "ranks 4, 5"),
        ([7, 0, 1, 2, 12], "ranks 0 to 2, 7, 12"),
        (list(range(0, 40, 2)), "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 12 more"),
    ],
)
def test_ranks_are_named_shortly(ranks: list[int], text: str) -> None:
    assert numbered("rank", ranks) == text


def test_numbers_that_are_not_at_hand_are_left_out_too() -> None:
    assert ranges([0, 1, 2], total=3) == "0 to 2"
    assert ranges([0, 1, 2, 9], total=1000, most=1) == "0 to 2 and 997 more"
    assert ranges([]) == ""


def test_a_stretch_of_steps() -> None:
    assert (stretch("step", 7, 7), stretch("step", 41, 42)) == ("step 7", "steps 41 to 42")


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    rows = [("part", "fwd", "note"), ("attention", "1,000", ""), ("a\nb", "7", "x")]
    assert aligned(rows) == ["part       fwd    note", "attention  1,000", "a\\x0ab     7      x"]
    assert aligned(rows, numbers_from=1) == [
        "part         fwd  note",
        "attention  1,000",
        "a\\x0ab         7     x",
    ]
