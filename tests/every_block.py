"""A report that holds every kind of block, made by hand: it shows what each format makes of them,
whatever the instruments say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flagscale_perf.analysis.blocks import (
    Findings,
    HeatMap,
    Interval,
    Lane,
    Layer,
    Line,
    Note,
    Pairs,
    Panel,
    Quantity,
    Report,
    Section,
    Series,
    StackedBar,
    Stripe,
    Table,
    Tile,
    Waterfall,
)
from flagscale_perf.analysis.rules import Change, Evidence, Finding

FINDING = Finding(
    "data_stall",
    "waits for data <1>",
    12.0,
    0.2,
    0.25,
    "tokens/s",
    [Evidence("data loading", 0.2, 0.05, "share", "docs")],
    11,
    20,
    [0, 3],
    ["a slow disk", "few workers"],
    [Change(["--num-workers 8"], "more of them", ["train.data.num_workers: 8"]), Change([], "a local copy")],
    "data_loading",
    "bursts",
)
RISK = Finding(
    "no_checkpoint",
    "no checkpoint",
    None,
    None,
    None,
    "",
    [Evidence("saved", 0, 1, "", "docs")],
    None,
    None,
    [],
    [],
    [],
)
PAIRS = Pairs(
    [
        ("a text", "a|b_c"),
        ("a share", Quantity(0.25, "share")),
        ("a change", Quantity(-1.5, "ms", 2, True)),
        ("several", ("from ", Quantity(1.0, "s"), " to ", Quantity(90.0, "s"))),
        ("not known", None),
    ]
)
TABLE = Table(
    ("name", "time", "change"),
    [
        (
            "first",
            Quantity(12.345, "ms"),
            Interval(*(Quantity(each, "share", is_change=True) for each in (0.02, -0.01, 0.05)), 0.1, 0.03),
        ),
        ("second", None, "-"),
        ("third", Quantity(2.0, "GB"), "="),
    ],
    figures=2,
    title="A table",
    most=2,
    colours=("red", "blue", "grey"),
    tones=("bad", "", "good"),
    notes=("below it", None, None),
    groups=("one", "two", ""),
    chosen=("one",),
)
FOLDED = Table(("only", "on demand"), [("a", Quantity(1.0)), ("b", Quantity(2.0))], 1, is_folded=True)
SERIES = Series(
    "trend",
    "A trend",
    [
        Panel(
            "Time",
            "ms",
            [
                Line("all", [1, 2, 3], [10.0, None, 12.5], "blue", group="one"),
                Line("usual", [1, 2, 3], [11.0, 11.0, 11.0], "grey", "dashed"),
                Line("seen", [2], [11.5], "red", "cross", texts=("step 2",)),
            ],
        ),
        Panel("Share", "share", [Line("of it", [1, 2, 3], [0.1, 0.2, 0.3], "green", "area")], True, 1),
    ],
    "iteration",
    (1, 3),
)
BAR = StackedBar(
    ("A bar of ", Quantity(10.0, "s")),
    "s",
    [Stripe("one", 7.0, 0.7, "blue"), Stripe("two", 3.0, 0.3, "orange"), Stripe("?", None, None, "grey")],
    room=12.0,
)
MAP = HeatMap(
    "ranks",
    "A map",
    "rank",
    ["0", "1"],
    "iteration",
    (1, 4),
    [1, 3, 5],
    [Layer("time", "ms", [[1.0, 2.0], [None, 4.0]]), Layer("share", "share", [[0.1, 0.2], [0.3, 0.4]])],
    [(1, 3, 5)],
)
FALL = Waterfall(
    "calls",
    "A waterfall",
    "ms",
    [
        Lane("send", 0.0, [Stripe("pack", 1.0, 0.25, "blue"), Stripe("write", 2.0, 0.5, "green")], ("x",)),
        Lane("take", 2.5, [Stripe("read", 1.5, 0.375, "red")], ("y",)),
    ],
    4.0,
)
NOTES = [Note("plain", ""), Note(("a ", Quantity(3.0, "s"), " warning"), "warn"), Note("bad", "bad")]


@dataclass(frozen=True)
class Data:
    """What programs get."""

    def as_dict(self) -> Mapping[str, Any]:
        """JSON-ready."""
        return {"a": [1, None, 0.25], "b": {"text": "ü"}}


def every_block() -> Report:
    """The report."""
    return Report(
        ("Every block of ", Quantity(2.0, "GB")),
        [PAIRS, NOTES[0]],
        [
            Section("words", "Words", "In words", [PAIRS, TABLE, FOLDED, *NOTES]),
            Section("pictures", "Pictures", "As pictures", [SERIES, BAR, MAP, FALL]),
        ],
        Data(),
        "what it is about",
        "completed",
        "good",
        [Tile("speed", Quantity(123.4, "tokens/s"), ("of ", Quantity(0.5, "share"))), Tile("none", None)],
        Findings([FINDING, RISK], ["goodput: no start is known"]),
        [("a", "b"), (1, None), (0.25, "=x")],
    )
