"""Waterfalls and heat maps as panels of a figure."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from flagscale_perf.analysis.blocks import HeatMap, Lane, Layer, Stripe, Waterfall
from flagscale_perf.report.png_lanes import Room, draw, room_of

FALL = Waterfall(
    "k",
    "A layer",
    "ms",
    [
        Lane("1 one", 0.0, [Stripe("send", 2.0, None, "blue"), Stripe("wait", None, None, "grey")]),
        Lane("2 two", 3.0, [Stripe("send", 1.0, None, "blue"), Stripe("server", 4.0, None, "green")]),
    ],
    8.0,
)


def test_bars_begin_where_those_before_them_end() -> None:
    axes = Figure().add_axes((0.1, 0.1, 0.8, 0.8))
    draw(axes, FALL)
    assert [(bar.get_x(), bar.get_width()) for bar in axes.patches] == [(0.0, 2.0), (3.0, 1.0), (4.0, 4.0)]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1 one", "2 two"]
    assert [label.get_text() for label in axes.get_legend().get_texts()] == ["send", "server"]
    assert axes.get_xlim() == (0, 8)


def test_cells_show_their_values_where_there_is_room_and_a_bar_explains_the_others() -> None:
    heat = HeatMap(
        *("k", "Ranks", "rank", ["0", "1"], "iteration", None, [0, 50, 100]),
        [Layer("work", "ms", [[0.5, 500.0], [None, 0.0]])],
    )
    figure = Figure(figsize=(16, 8))
    draw(axes := figure.add_axes((0.1, 0.1, 0.4, 0.4)), heat)
    assert [(text.get_text(), text.get_color()) for text in axes.texts] == [
        ("0.5", "white"),
        ("500", "black"),
    ]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("iteration", "rank")
    assert axes.get_title(loc="left") == "Work of each rank, ms"
    draw(axes := figure.add_axes((0.1, 0.6, 0.4, 0.4)), replace(heat, edges=[0, 1, 100]))
    assert [text.get_text() for text in axes.texts] == ["500"]
    _, _, bar = figure.axes
    assert bar.get_yscale() == "log"


def test_nothing_lies_on_anything_else_however_many_rows_and_however_long_a_legend() -> None:
    kinds = [f"kind of work {number}" for number in range(9)]
    names = [f"model.layers.{number}.self_attn.q_proj" for number in range(20)]
    fall = Waterfall(
        "k",
        "The 20 longest modules of a training step",
        "ms",
        [Lane(name, 0.0, [Stripe(kind, 1.0, None, "blue") for kind in kinds]) for name in names],
        10.0,
    )
    room = room_of(fall, 7.0, 16.0, 2.15)
    figure = Figure(figsize=(16, 8))
    axes = figure.add_axes((0.05, 0.2, 7 / 16, room.height / 8))
    draw(axes, fall)
    FigureCanvasAgg(figure).draw()
    labels = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert all(upper.y0 >= lower.y1 for upper, lower in pairwise(labels))
    legend = axes.get_legend().get_window_extent()
    title = next(text for text in axes.texts + axes.get_children() if _says(text, fall.title))
    assert legend.y1 <= title.get_window_extent().y0 + 2
    assert legend.x1 <= axes.get_window_extent().x1
    assert title.get_window_extent().x1 <= axes.get_window_extent().x1
    assert min(label.x0 for label in labels) >= 0


def _says(text: object, words: str) -> bool:
    return isinstance(text, Text) and text.get_text().startswith(words)


def test_a_panel_with_few_rows_and_a_short_legend_needs_no_more_than_usual() -> None:
    assert room_of(FALL, 7.0, 16.0, 2.15) == Room(2.15, 0.0, 0.0)
    many = replace(FALL, lanes=FALL.lanes * 15)
    assert room_of(many, 7.0, 16.0, 2.15).height > 4
