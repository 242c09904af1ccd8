"""How many of each unit a step has, by hand."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from flagscale_perf.flops.shape import Experts, Shape
from flagscale_perf.flops.step import Measure, Step
from flagscale_perf.flops.units import EXPERT_ROW, TOKEN, ChunkRow, Pair, Unit
from flagscale_perf.flops_calculator import ModelShape, Packed, step_flops, work_flops

PAIR = Pair()
SHAPE = Shape(layers=1, hidden=4, heads=2, kv_groups=2, head_dim=3, ffn=8, gated=False, vocab=16)


@pytest.mark.parametrize(
    ("packed", "full", "causal_half", "visible", "windowed"),
    [
        # 2 x 64 pairs; half; 2 x (1 + ... + 8); with one earlier key 2 x (1 + 7 x 2)
        (None, 128, 64, 72, 30),
        # documents of 3, 5 and 7: (9 + 25 + 49) / 2; 6 + 15 + 28; 1 + 2 x 2 and 1 + 4 x 2 and 1 + 6 x 2
        ((3, 5, 7), 128, 41.5, 49, 27),
    ],
)
def test_pairs(packed, full, causal_half, visible, windowed) -> None:
    def doubled(convention: str, unit: Unit = PAIR) -> int:
        return unit.doubled(Measure(SHAPE, Step(2, 8, packed), convention, padded=False))

    assert doubled("full") == 2 * full
    assert doubled("causal_half") == 2 * causal_half
    assert doubled("visible") == 2 * visible
    assert doubled("visible", Pair(window_left=1)) == 2 * windowed


def test_rows_of_chunks_fill_the_last_one_up() -> None:
    def rows(unit: Unit, packed: tuple[int, ...] | None) -> int:
        return unit.doubled(Measure(SHAPE, Step(2, 10, packed), "causal_half", padded=False)) // 2

    assert rows(ChunkRow(4, restarts=True), None) == 2 * 12
    # 5 -> 8, 7 -> 8, 4 -> 4: documents begin chunks of their own, or do not
    assert rows(ChunkRow(4, restarts=True), (5, 7, 4)) == 8 + 8 + 4
    assert rows(ChunkRow(4, restarts=False), (5, 7, 4)) == 2 * 12


def test_what_follows_from_tokens_and_squared_lengths() -> None:
    units: list[Unit] = [TOKEN, EXPERT_ROW, Pair(), ChunkRow(4, restarts=False)]
    assert [unit.slope(SHAPE) for unit in units] == [(2, 0), (2, 0), (0, 1), None]


@pytest.mark.parametrize("stages", [1, 4])
def test_what_a_unit_of_work_costs_adds_up_to_the_step(stages: int) -> None:
    """A stage of the pipeline has its part of the experts' layers; tokens there weigh as much more."""
    moe = replace(SHAPE, experts=Experts(8, 2, 16, (True,)))
    for given, routed in ((SHAPE, 0), (moe, 2)):
        model = ModelShape(**{each.name: getattr(given, each.name) for each in fields(given)})
        costs, lengths = work_flops(model, stages), (3, 5, 8, 7)
        rows = routed * model.layers * sum(lengths) / stages
        squared = sum(n * n for n in lengths)
        work = {"tokens": sum(lengths), "squared_lengths": squared, "expert_tokens": rows}
        expected = step_flops(model, 1, 23, Packed(sum(lengths), squared)).model_flops
        assert sum(costs[kind] * work[kind] for kind in costs) == pytest.approx(expected, rel=1e-12)
        assert ("expert_tokens" in costs) == bool(routed)
