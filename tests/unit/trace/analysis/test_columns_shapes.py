"""Lines of a log in columns."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf.trace.analysis.columns import MAX_FIGURE, Shape, TextLines, Value

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


def take(data: bytes) -> tuple[list[list[Any]], list[bytes]]:
    columns, rest = LINES.take(data)
    return [[list(column) for column in each] for each in columns], sorted(rest.splitlines())


def test_what_is_of_a_shape_comes_in_columns_and_the_rest_as_it_is() -> None:
    columns, rest = take(TEXT)
    assert columns == [
        [[b"\x1b[36m(W pid=7)\x1b[0m ", b""], [b"a b", b"a b"], [], [0.052, 3.0], [], [64, None]],
        [[b"INFO "], [12]],
    ]
    assert rest == sorted(line for line in TEXT.split(b"\n")[4:-1])


def test_a_last_line_needs_no_end() -> None:
    columns, rest = take(b"[X] end=1\n[X] end=2")
    assert (columns[1], rest) == ([[b"", b""], [1, 2]], [])


def test_a_line_that_only_looks_like_the_first_shape_is_taken_by_the_next() -> None:
    columns, rest = take(b" | took=[X] end=1\n")
    assert (columns[1], rest) == ([[b" | took="], [1]], [])


@given(st.integers(0, 10**12 - 1), st.integers(0, 9), st.integers(0, 10**9 - 1))
def test_figures_are_the_numbers_next_to_their_text(whole: int, decimals: int, part: int) -> None:
    figure = f"{whole}.{part % 10**decimals:0{decimals}d}" if decimals else str(whole)
    columns, rest = take(b"[X] id=a | took=%ss" % figure.encode())
    is_kept = len(figure.replace(".", "")) <= MAX_FIGURE
    assert columns[0][3] == ([float(figure)] if is_kept else [])
    assert bool(rest) == (not is_kept)
