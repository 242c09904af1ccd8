"""Lines of a log in columns: the same with the extension and without."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf.spine import text_lines
from flagscale_perf.spine.text_lines import Shape, TextLines, Value

EXTENSION = text_lines.hot.load("_reading")
SHAPES = [
    Shape(
        b"[X] id=",
        [
            (b"", Value.TEXT),
            (b" | at=", Value.TEXT | Value.OPTIONAL | Value.LEFT_OUT),
            (b" | took=", Value.FIGURE),
            (b"s", Value(0)),
            (b" | rows=", Value.INTEGER | Value.OPTIONAL),
        ],
    ),
    Shape(b"[X] end=", [(b"", Value.INTEGER)]),
]
LINES = TextLines(b"[X", SHAPES)
TEXT = b"""nothing
\x1b[36m(W pid=7)\x1b[0m [X] id=a b | at=12:30 | took=0.052000s | rows=64
[X] id=a b | took=3s
INFO [X] end=12\x1b[0m\r
[X] end=x
[X] id=one [X] id=two | took=1s
[X] id=c | took=1s | more=1
[X] id=d | took=1234567890123s
[X] id=e | took=12345678.12345678s
[X] id=f | took=1s | rows=1 [repeated 2x]
"""


def both(data: bytes, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found = []
    for extension in (EXTENSION, None):
        monkeypatch.setattr(text_lines, "_extension", extension)
        columns, rest = LINES.take(data)
        found.append(([[list(column) for column in each] for each in columns], sorted(rest.splitlines())))
    return found


def test_what_is_of_a_shape_comes_in_columns_and_the_rest_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns, rest in both(TEXT, monkeypatch):
        assert columns == [
            [[b"\x1b[36m(W pid=7)\x1b[0m ", b""], [b"a b", b"a b"], [], [0.052, 3.0], [], [64, None]],
            [[b"INFO "], [12]],
        ]
        assert rest == sorted(line for line in TEXT.split(b"\n")[4:-1])


def test_a_last_line_needs_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns, rest in both(b"[X] end=1\n[X] end=2", monkeypatch):
        assert (columns[1], rest) == ([[b"", b""], [1, 2]], [])


def test_a_line_that_only_looks_like_the_first_shape_is_taken_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for columns, rest in both(b" | took=[X] end=1\n", monkeypatch):
        assert (columns[1], rest) == ([[b" | took="], [1]], [])


FRAGMENTS = [
    *(b"[X] id=", b"[X] end=", b" | at=", b" | took=", b"s", b" | rows=", b" | ", b"[X", b"1", b"0.5", b"23"),
    *(b"a", b" ", b"|", b"\n", b"\r\n", b"\x1b[0m", b"\x1b[", b"m", b".", b"\xff", b"\x00", b"9" * 13),
]


@pytest.mark.skipif(EXTENSION is None, reason="the extension is not built")
@given(
    st.lists(st.sampled_from(FRAGMENTS), max_size=40),
    st.integers(0, len(TEXT)),
    st.sampled_from(FRAGMENTS),
    st.integers(0, 20),
)
def test_the_extension_says_what_python_says(
    fragments: list[bytes], place: int, put: bytes, gone: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for data in (b"".join(fragments), TEXT[:place] + put + TEXT[place + gone :]):
            one, two = both(data, patch)
            assert one == two


@pytest.mark.skipif(EXTENSION is None, reason="the extension is not built")
@given(st.integers(0, 10**12 - 1), st.integers(0, 9), st.integers(0, 10**9 - 1))
def test_figures_are_the_numbers_next_to_their_text(whole: int, decimals: int, part: int) -> None:
    figure = f"{whole}.{part % 10**decimals:0{decimals}d}" if decimals else str(whole)
    with pytest.MonkeyPatch.context() as patch:
        for columns, rest in both(b"[X] id=a | took=%ss" % figure.encode(), patch):
            is_kept = len(figure.replace(".", "")) <= text_lines.MAX_FIGURE
            assert columns[0][3] == ([float(figure)] if is_kept else [])
            assert bool(rest) == (not is_kept)


@pytest.mark.skipif(EXTENSION is None, reason="the extension is not built")
@pytest.mark.parametrize("wrong", [((b"k",),), (((b"k", b"j"), b"1"),), (((1,), b"1"),), (((), b""),) * 17])
def test_the_extension_refuses_what_is_no_shape(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError, SystemError)):
        EXTENSION.take_text_lines(b"", b"[X", wrong)  # type: ignore[union-attr]
