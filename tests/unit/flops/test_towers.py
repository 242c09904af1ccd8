"""Which towers there cannot be, and what follows from one's sizes."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.towers import Vision
from flagscale_perf.spine.errors import PerfError

SIZES = {
    "layers": 3,
    "hidden": 8,
    "heads": 2,
    "ffn": 16,
    "gated": False,
    "patch_inputs": 12,
    "projector_inner": 32,
}


def test_the_projector_reads_merged_patches_of_all_outputs_that_are_used():
    assert Vision(**SIZES).projector_inputs == 8
    assert Vision(**SIZES, merge=2).projector_inputs == 8 * 4
    assert Vision(**SIZES, merge=2, used=(1, 2)).projector_inputs == 8 * 4 * 2


def test_layers_behind_the_last_output_get_no_gradient():
    assert Vision(**SIZES).used_layers == 3
    assert Vision(**SIZES, used=(2, 0)).used_layers == 2
    assert Vision(**SIZES, used=(0,)).used_layers == 0


def test_some_layers_see_whole_frames_in_spite_of_windows():
    windowed = Vision(**SIZES, window=2, whole_frames=(False, True, False))
    assert [windowed.sees_whole_frames(layer) for layer in range(3)] == [False, True, False]
    assert all(Vision(**SIZES).sees_whole_frames(layer) for layer in range(3))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"heads": 3}, "hidden_size 8 is not a multiple of its 3 heads"),
        ({"used": (4,)}, "the outputs after .4,. layers are used, there are 3"),
        ({"merge": 2, "images": ((1, 4, 3),)}, "image_grids has 1,4,3; .* both multiples of 2"),
        ({"images": ((0, 4, 4),)}, "image_grids has 0,4,4"),
    ],
)
def test_refused(more, says):
    with pytest.raises(PerfError, match=says):
        Vision(**SIZES | more)
