"""Efficiency and losses by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.bench.analysis.efficiency import filled, gains_of, lost_of
from flagscale_perf.bench.analysis.served import groups_of
from flagscale_perf.bench.losses import BETWEEN, PROFILING, WAIT
from tests.efficiency_runs import parallel_part


def test_a_pipeline_cannot_be_fuller_than_its_filling() -> None:
    assert [filled(m, 2) for m in (1, 2, 8)] == [1 / 2, 2 / 3, 8 / 9]
    assert filled(4, 1) == 1.0


def test_efficiency_is_t1_over_p_tp(tmp_path: Path) -> None:
    part = parallel_part(tmp_path)
    again, tensor = gains_of(groups_of(part, "duration"), "batch", is_rate=False)
    assert (again.setting.arm, again.efficiency, again.bound) == ("single again", 1.0, None)
    assert (tensor.one, tensor.here, tensor.speedup) == (1.0, 0.8, 1.25)
    assert tensor.efficiency == 1.0 / (2 * 0.8)
    assert tensor.noise == pytest.approx(0.1 / 1.0 + 0.1 / 0.8)
    (pipeline,) = gains_of(groups_of(part, "tokens"), "flow", is_rate=True)
    assert (pipeline.speedup, pipeline.efficiency, pipeline.bound) == (1.2, 0.6, 8 / 9)


def test_losses_are_what_the_client_sees(tmp_path: Path) -> None:
    ((key, lost),) = lost_of(parallel_part(tmp_path)).items()
    assert key == ("TP 2", "decode")
    assert [each.part for each in lost.parts] == [WAIT, "host", PROFILING, BETWEEN]
    assert lost.total == pytest.approx(0.012 - 0.016 / 2)
    assert lost.communication == pytest.approx(0.003 / 0.009)
