"""Sizes that follow from others."""

from __future__ import annotations

from flagscale_perf.flops.sizes import Mamba


def test_the_inner_width_is_that_of_the_heads() -> None:
    assert Mamba(heads=8, head_dim=6, state=12, groups=2).inner == 48
