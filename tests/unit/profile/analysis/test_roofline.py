"""Work among the roofs."""

from __future__ import annotations

import pytest

from flagscale_perf.profile.analysis.roofline import Roofs, operators_of, points_of, roofs_of
from flagscale_perf.profile.analysis.source import Profile
from flagscale_perf.profile.analysis.sums import sums_of


def test_work_is_measured_against_the_lower_roof(profile: Profile) -> None:
    roofs = roofs_of(profile)
    assert roofs == Roofs({"float32": 2e11}, 1e10)
    points = {point.label: point for point in points_of(sums_of(profile)["train"], roofs)}
    matmul = points["layer 1 matmul"]  # 2.25 GFLOP and 45 MB in 25 ms
    assert (matmul.flop_per_s, matmul.bytes_per_s, matmul.intensity) == (9e10, 1.8e9, 50)
    assert (matmul.floor_ns, matmul.roof_share, matmul.bound) == (11.25e6, pytest.approx(0.45), "compute")
    silu = points["layer 1 activation"]  # 24 MB in 3 ms
    assert (silu.flop_per_s, silu.roof_share, silu.bound) == (None, pytest.approx(0.8), "memory")
    assert [point.label for point in points.values() if point.intensity] == [
        "layer 0 matmul",
        "layer 1 matmul",
        "layer 0 attention",
    ]


def test_without_roofs_only_speeds_are_known(profile: Profile) -> None:
    point = operators_of(sums_of(profile)["train"], Roofs({}, None))["aten::mm"]
    assert point.flop_per_s == pytest.approx(4.5e9 / 61.5e-3)
    assert (point.floor_ns, point.roof_share, point.bound) == (None, None, None)
