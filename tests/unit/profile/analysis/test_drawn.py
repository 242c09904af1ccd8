"""A profile in pictures."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis.blocks import HeatMap, Series, StackedBar, Waterfall
from flagscale_perf.profile.analysis import drawn
from flagscale_perf.profile.analysis.report import ProfileReport


def test_a_bar_for_each_rank(found: ProfileReport) -> None:
    first, second = drawn.books(found, found.sums["train"])
    assert isinstance(first, StackedBar)
    assert isinstance(second, StackedBar)
    assert first.room == second.room == 101
    assert [part.value for part in second.parts] == [73, 6, 10, 7, 3, 2]


def test_layers_against_ranks(found: ProfileReport) -> None:
    sums = found.sums["train"]
    second = max(sums.books)
    slow = [replace(cell, self_ns=2 * cell.self_ns) if cell.rank == second else cell for cell in sums.cells]
    ranks, *_ = drawn.layers(found, replace(sums, cells=slow))
    assert isinstance(ranks, HeatMap)
    assert (ranks.rows, ranks.columns) == (
        ["embed_tokens", "layer 0", "layer 1", "outside"],
        ["rank 0", "rank 1"],
    )
    whole, *parts = ranks.layers
    assert [one.label for one in parts] == ["forward", "backward", "optimizer", "other"]
    assert whole.values == [[2, 4], [53, 106], [33, 66], [11, 22]]
    assert parts[1].values == [[None, None], [20, 40], [15, 30], [3, 6]]


def test_layers_against_kinds_of_work_and_modules(found: ProfileReport) -> None:
    _, kinds, modules = drawn.layers(found, found.sums["train"])
    assert isinstance(kinds, HeatMap)
    assert isinstance(modules, HeatMap)
    assert kinds.rows == ["embed_tokens", "layer 0", "layer 1", "outside"]
    assert [layer.label for layer in kinds.layers] == [
        *("whole train step", "forward", "backward", "optimizer", "other", "rank 0", "rank 1"),
    ]
    by_label = {layer.label: layer.values for layer in kinds.layers}
    assert by_label["whole train step"][1][0] == 36.5
    assert by_label["rank 0"][1][0] == 35
    assert by_label["rank 1"][1][0] == 38
    assert by_label["backward"][0][0] is None
    assert (modules.rows, modules.columns) == (
        ["layer 0", "layer 1"],
        ["self_attn.q_proj", "self_attn", "mlp", "(layer)"],
    )


def test_operators_by_the_part_of_the_step(found: ProfileReport) -> None:
    kinds, _ = drawn.operators(found, found.sums["train"])
    assert isinstance(kinds, Waterfall)
    first = kinds.lanes[0]
    assert (first.label, [(part.label, part.value) for part in first.parts]) == (
        "matmul",
        [("forward", 26.5), ("backward", 35.0)],
    )


def test_the_roofline_has_logarithmic_scales(found: ProfileReport) -> None:
    (block,) = drawn.roofline(found, found.sums["train"])
    assert isinstance(block, Series)
    assert block.is_log
    roof, matmul, attention = block.panels[0].lines
    assert (roof.x, roof.y) == ([5, 20, 200], [50, 200, 200])
    assert (matmul.y[1], attention.y) == (90, [20])


def test_memory_of_a_module_stands_below_that_of_what_contains_it(found: ProfileReport) -> None:
    (chart,) = drawn.memory(found)
    assert isinstance(chart, Waterfall)
    assert [lane.label for lane in chart.lanes] == ["layer 0", "layer 1"]


def test_the_longest_modules_have_a_colour_for_each_kind_and_one_for_the_rest(found: ProfileReport) -> None:
    """Layer 0's q_proj takes 35 ms of products and 1.5 more on rank 1; outside are 6 ms of the optimizer."""
    (chart,) = drawn.longest(found, found.sums["train"])
    assert isinstance(chart, Waterfall)
    shades = {part.label: part.colour for lane in chart.lanes for part in lane.parts}
    assert len(set(shades.values())) == len(shades)
    assert shades["other work"] == "purple"
    lanes = {lane.label: {part.label: part.value for part in lane.parts} for lane in chart.lanes}
    assert lanes["model.layers.0.self_attn.q_proj"] == {"matmul": 36.5}
    assert lanes["outside"] == {"host": 2.0, "engine": 3.0, "other work": 6.0}
