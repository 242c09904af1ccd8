"""Numbers with their units."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.blocks import (
    Cell,
    Lane,
    Quantity,
    StackedBar,
    Stripe,
    Table,
    Waterfall,
)
from flagscale_perf.report.format import as_table, bar_rows, cells, left_out, shown


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Quantity(0.1234, "share"), "12.3 %"),
        (Quantity(0.0, "share"), "0.0 %"),
        (Quantity(0.00021, "share"), "0.0210 %"),
        (Quantity(-0.02, "share"), "-2.0 %"),
        (Quantity(0.06, "share", 2, is_change=True), "+6.00 %"),
        (Quantity(-0.06, "share", 2, is_change=True), "-6.00 %"),
        (Quantity(-0.00001, "share", 2), "0.00 %"),
        (Quantity(-0.00001, "share", 2, is_change=True), "+0.00 %"),
        (Quantity(0.25, "s"), "0.250 s"),
        (Quantity(0.0, "s"), "0.0 s"),
        (Quantity(119.94, "s"), "119.9 s"),
        (Quantity(200, "s"), "3 min 20 s"),
        (Quantity(25_500, "s"), "7 h 05 min"),
        (Quantity(3 * 86_400 + 4 * 3600, "s"), "3 d 04 h"),
        (Quantity(12.34, "ms"), "12.3 ms"),
        (Quantity(2131.4, "ms"), "2,131 ms"),
        (Quantity(1.5, "GB"), "1.50 GB"),
        (Quantity(1234567), "1,234,567"),
        (Quantity(4.04e21, "FLOP"), "4.04 ZFLOP"),
        (Quantity(29_100_000, "J"), "29.1 MJ"),
        (Quantity(7, "J"), "7 J"),
        (Quantity(0.01234, "", 1), "0.0123"),
        (Quantity(32768.4, "", 0), "32,768"),
        (Quantity(1.2, "times"), "1.2 times"),
        (Quantity(None, "GB"), "-"),
        (("p95 ", Quantity(2.0, "ms"), ", max ", Quantity(None, "ms")), "p95 2.0 ms, max -"),
        ("as it is", "as it is"),
        (None, "-"),
    ],
)
def test_a_cell(cell: Cell, text: str) -> None:
    assert shown(cell) == text


def test_a_table_as_text_and_how_much_does_not_fit() -> None:
    table = Table(
        ("phase", "time"), [("forward", Quantity(1.0, "ms")), ("a\nb", None), ("c", "d")], 1, most=2
    )
    assert cells(table) == [["phase", "time"], ["forward", "1.0 ms"], ["a\nb", "-"]]
    assert left_out(table) == "and 1 more"


def test_a_bar_in_lines() -> None:
    bar = StackedBar("all", "s", [Stripe("work", 30.0, 0.75, "green"), Stripe("rest", None, None, "grey")])
    assert bar_rows(bar) == [("work", "30.0 s (75.0 %)"), ("rest", "-")]


def test_parts_of_a_bar_that_took_next_to_nothing_are_left_out() -> None:
    parts = [Stripe(f"{share}", 100 * share, share, "grey") for share in (0.0, 5e-7, 3e-4, 0.9997)]
    assert bar_rows(StackedBar("all", "s", parts)) == [
        ("0.0003", "0.0300 s (0.0300 %)"),
        ("0.9997", "100.0 s (100.0 %)"),
    ]


def test_pictures_in_figures() -> None:
    fall = Waterfall(
        "k",
        "A layer",
        "ms",
        [
            Lane(
                "one", 0.0, [Stripe("send", 2.0, None, "blue"), Stripe("wait", None, None, "grey")], ("1 MB",)
            ),
            Lane("two", 3.0, [Stripe("server", 4.0, None, "green")], ("2 MB",)),
        ],
        8.0,
    )
    assert cells(as_table(fall)) == [
        ["", "at", "send", "server", ""],
        ["one", "0.000", "2.000", "-", "1 MB"],
        ["two", "3.000", "-", "4.000", "2 MB"],
    ]


def test_a_picture_of_nothing_is_an_empty_table() -> None:
    assert as_table(Waterfall("k", "A layer", "ms", [], 0.0)).rows == []
