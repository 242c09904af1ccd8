"""How many patches and pairs a step has, counted one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flagscale_perf.flops.shape import Shape
from flagscale_perf.flops.step import Measure, Step
from flagscale_perf.flops.tower_units import Patch, PatchPair
from flagscale_perf.flops.towers import Vision
from flagscale_perf.spine.errors import PerfError

SHAPE = Shape(layers=1, hidden=4, heads=2, kv_groups=2, head_dim=2, ffn=8, gated=False, vocab=16)
TOWER = Vision(1, 8, 2, 16, False, 12, 32, merge=2, images=((1, 6, 10), (3, 4, 4)))
WITH_IMAGES = replace(SHAPE, vision=TOWER)


def number(unit, shape, convention="full", packed=None):
    doubled = unit.doubled(Measure(shape, Step(2, 10, packed), convention, padded=False))
    assert doubled % 2 == 0
    return doubled // 2


def windows(height, width, side):
    """Lengths of the windows of one frame, cell by cell; a cell is a merged patch of 4."""
    cells = {}
    for row in range(height // 2):
        for column in range(width // 2):
            key = row // side, column // side
            cells[key] = cells.get(key, 0) + 4
    return cells.values()


def test_patches_of_all_frames():
    assert number(Patch(), WITH_IMAGES) == 60 + 3 * 16
    assert number(Patch(extra=1), WITH_IMAGES) == 61 + 3 * 17
    assert number(Patch(merge=2), WITH_IMAGES) == 15 + 3 * 4
    assert number(Patch(merge=2, extra=1), WITH_IMAGES) == 16 + 3 * 5


def test_a_frame_sees_itself_only():
    assert number(PatchPair(), WITH_IMAGES) == 60**2 + 3 * 16**2
    assert number(PatchPair(extra=1), WITH_IMAGES) == 61**2 + 3 * 17**2


@pytest.mark.parametrize("side", [1, 2, 3, 4, 9])
def test_windows_are_smaller_at_the_edges(side):
    expected = sum(length**2 for length in windows(6, 10, side))
    expected += 3 * sum(length**2 for length in windows(4, 4, side))
    assert number(PatchPair(window=side, merge=2), WITH_IMAGES) == expected


def test_tokens_and_documents_do_not_say_it():
    assert {unit.slope(SHAPE) for unit in (Patch(), PatchPair())} == {None}


def test_what_a_step_lacks_is_named():
    with pytest.raises(PerfError, match="image_grids is missing"):
        number(Patch(), replace(SHAPE, vision=replace(TOWER, images=None)))
