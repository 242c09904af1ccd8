"""Waterfalls and box plots as panels of a figure."""

from __future__ import annotations

from matplotlib.figure import Figure

from flagscale_perf.analysis.blocks import Boxes, BoxRow, Lane, Stripe, Waterfall
from flagscale_perf.report.png_lanes import boxes, waterfall

FALL = Waterfall("k", "A layer", "ms", [
    Lane("1 one", 0.0, [Stripe("send", 2.0, None, "blue"), Stripe("wait", None, None, "grey")]),
    Lane("2 two", 3.0, [Stripe("send", 1.0, None, "blue"), Stripe("server", 4.0, None, "green")]),
], 8.0)  # fmt: skip


def test_bars_begin_where_those_before_them_end() -> None:
    axes = Figure().add_axes((0.1, 0.1, 0.8, 0.8))
    waterfall(axes, FALL)
    assert [(bar.get_x(), bar.get_width()) for bar in axes.patches] == [(0.0, 2.0), (3.0, 1.0), (4.0, 4.0)]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1 one", "2 two"]
    assert [label.get_text() for label in axes.get_legend().get_texts()] == ["send", "server"]
    assert axes.get_xlim() == (0, 8)


def test_a_box_for_each_row_the_first_on_top() -> None:
    axes = Figure().add_axes((0.1, 0.1, 0.8, 0.8))
    boxes(axes, Boxes("k", "Spread", "ms", [BoxRow("send", 1, 2, 3, 4, 5, "blue")] * 2))
    assert axes.yaxis_inverted() and len(axes.get_yticklabels()) == 2
    assert axes.get_position().x0 > 0.1  # room for the labels
