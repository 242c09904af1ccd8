"""Parallel efficiency of a serving model, from sessions whose ratios are computed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.bench.analysis.parallelism import gains_of
from flagscale_perf.bench.analysis.served import groups_of
from tests.efficiency_runs import parallel_part


def test_efficiency_is_t1_over_p_tp(tmp_path: Path) -> None:
    part = parallel_part(tmp_path)
    (tensor,) = gains_of(groups_of(part, "duration"), "batch", is_rate=False)
    assert (tensor.one, tensor.here, tensor.speedup, tensor.lost) == (1.0, 0.8, 1.25, pytest.approx(0.3))
    assert tensor.efficiency == 1.0 / (2 * 0.8)
    assert tensor.noise == pytest.approx(0.1 / 1.0 + 0.1 / 0.8)
    (pipeline,) = gains_of(groups_of(part, "tokens"), "flow", is_rate=True)
    assert (pipeline.speedup, pipeline.efficiency, pipeline.lost) == (1.2, 0.6, None)
