"""What an operation costs by its shape."""

from __future__ import annotations

import random

import pytest

from flagscale_perf.trace.analysis.model import BYTES, CELLS, FIXED, Shapes, fit
from tests.trace_runs import MIB, MS, US

SHAPES = [
    (rows, fields, size)
    for rows in (16, 64, 256, 1024)
    for fields in (1, 4, 12)
    for size in (64 << 10, 1 << 20, 8 << 20)
]


def _takes(rows: int, fields: int, size: int) -> float:
    """What was measured of gets."""
    return 1.84 * MS + 12.7 * US * rows * fields + 0.54 * MS * size / MIB


def _made(noise: float, calls: int = 5) -> Shapes:
    shapes, source = Shapes(), random.Random(3)
    for shape in SHAPES:
        for _ in range(calls):
            slow = 8.0 if source.random() < 0.02 else 1.0
            shapes.add(*shape, round(_takes(*shape) * source.lognormvariate(0, noise) * slow))
    return shapes


def test_costs_come_back_exactly_without_noise() -> None:
    shapes = Shapes()
    for shape in SHAPES:
        shapes.add(*shape, round(_takes(*shape)))
    model = fit(shapes)
    assert model and model.error < 1e-5
    costs = (model.fixed_ns / MS, model.cell_ns / US, model.byte_ns * MIB / MS)
    assert costs == pytest.approx((1.84, 12.7, 0.54), rel=1e-4)


@pytest.mark.parametrize(
    ("before", "after"), [((64, 4, MIB), (64, 2, MIB)), ((1024, 4, MIB), (256, 4, MIB // 4))]
)
def test_predicted_gains_are_right_within_a_fifth_of_noise(before, after) -> None:
    model = fit(_made(noise=0.15))
    found = model.predict(*before) - model.predict(*after)
    assert found == pytest.approx(_takes(*before) - _takes(*after), rel=0.2)


def test_the_bound_is_the_largest_part() -> None:
    model = fit(_made(noise=0.1))
    assert [model.bound(*shape) for shape in ((16, 1, 65536), (1024, 12, MIB), (16, 1, 64 * MIB))] == [
        FIXED,
        CELLS,
        BYTES,
    ]


def test_too_few_are_refused() -> None:
    shapes = Shapes()
    for _ in range(29):
        shapes.add(64, 4, MIB, 4 * MS)
    model = fit(shapes)
    assert not model
    assert model.reason == "needs 30 operations of 3 shapes (rows, fields, bytes); has 29 of 1"


def test_parts_that_cannot_be_told_apart_are_refused() -> None:
    shapes = Shapes()
    for rows in (16, 64, 256, 1024):
        for _ in range(10):
            shapes.add(rows, 4, rows * 4096, rows * MS)
    assert fit(shapes).reason == "rows x fields and bytes grow together: vary one of them alone"


def test_times_that_follow_something_else_are_refused() -> None:
    shapes, source = Shapes(), random.Random(0)
    for shape in SHAPES:
        took = round(source.choice((1, 100)) * MS)
        for _ in range(5):
            shapes.add(*shape, took)
    assert fit(shapes).reason.startswith("times do not follow the shape: ")


def test_no_cost_is_below_zero() -> None:
    shapes = Shapes()
    for rows, fields, size in SHAPES:
        shapes.add(rows, fields, size, round(3 * MS + MS * size / MIB))
    model = fit(shapes)
    assert min(model.fixed_ns, model.cell_ns, model.byte_ns) >= 0
