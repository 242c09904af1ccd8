"""How many patches, pairs and decoder tokens a step has, counted one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flagscale_perf.flops.shape import Shape
from flagscale_perf.flops.step import Measure, Step
from flagscale_perf.flops.tower_units import (
    CROSS_PAIR,
    DECODER_PAIR,
    DECODER_TOKEN,
    FULL_PAIR,
    SEQUENCE,
    Patch,
    PatchPair,
)
from flagscale_perf.flops.towers import Encoder, Vision
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


def test_the_conventions_touch_the_decoder_only():
    shape = replace(SHAPE, encoder=Encoder(2, decoder_seq_length=7))
    conventions = ("full", "causal_half", "visible")
    pairs = {unit: [2 * 7 * 7, 7 * 7, 7 * 8] for unit in (DECODER_PAIR,)}
    pairs |= {CROSS_PAIR: [2 * 10 * 7] * 3, FULL_PAIR: [2 * 100] * 3, DECODER_TOKEN: [2 * 7] * 3}
    pairs |= {SEQUENCE: [2] * 3}
    for unit, expected in pairs.items():
        assert [number(unit, shape, convention) for convention in conventions] == expected


def test_packed_documents_see_themselves_only():
    assert number(FULL_PAIR, SHAPE, "causal_half", packed=(3, 4, 5)) == 9 + 16 + 25
    assert number(FULL_PAIR, SHAPE, "full", packed=(3, 4, 5)) == 200


def test_what_tokens_and_documents_say():
    assert FULL_PAIR.slope(SHAPE) == (0, 2)
    assert {unit.slope(SHAPE) for unit in (SEQUENCE, DECODER_TOKEN, CROSS_PAIR, Patch(), PatchPair())} == {
        None
    }


@pytest.mark.parametrize(
    ("unit", "shape", "says"),
    [
        (DECODER_TOKEN, replace(SHAPE, encoder=Encoder(2)), "decoder_seq_length is missing"),
        (Patch(), replace(SHAPE, vision=replace(TOWER, images=None)), "image_grids is missing"),
    ],
)
def test_what_a_step_lacks_is_named(unit, shape, says):
    with pytest.raises(PerfError, match=says):
        number(unit, shape)
