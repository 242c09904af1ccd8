"""Profiled steps by rank, part, module and operator, against figures worked out by hand."""

from __future__ import annotations

import pytest

from flagscale_perf.profile.analysis.instrument import report_of
from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.profile.analysis.source import Profile
from flagscale_perf.profile.analysis.tree import tree_of


def test_each_rank_by_part_and_module(found: ProfileReport) -> None:
    tree = tree_of(found)
    assert tree is not None
    assert [(one.name, list(one.ranks)) for one in tree.parts] == [
        ("in 2 profiled train steps, rank 0", [0]),
        ("in 2 profiled train steps, rank 1", [1]),
    ]
    first = tree.parts[0]
    assert first.dur_s == pytest.approx(0.202)
    parts = {one.key: one for one in first.parts}
    # milliseconds of both steps together, see tests/profile_runs.py
    assert {key: one.dur_s for key, one in parts.items()} == pytest.approx(
        {"forward": 0.106, "backward": 0.076, "optimizer": 0.012, "other": 0.004}
    )
    layers = {one.name: one.dur_s for one in parts["forward"].parts}
    assert layers == pytest.approx({"layer 0": 0.066, "layer 1": 0.036, "embed_tokens": 0.004})
    operators = {one.name: one.dur_s for one in parts["forward"].parts[0].parts}
    assert operators["aten::mm"] == pytest.approx(0.030)
    rest = first.closed().parts[-1]
    assert (rest.name, rest.dur_s) == ("other", pytest.approx(0.004))  # the residual


def test_no_profiled_step_is_no_tree(nothing: Profile) -> None:
    assert tree_of(report_of(nothing)) is None
