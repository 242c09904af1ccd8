"""Efficiency and the profiled steps by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.bench.analysis.parallelism import gains_of, steps_of
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


def test_a_step_stands_beside_what_the_client_sees(tmp_path: Path) -> None:
    one, two = steps_of(parallel_part(tmp_path))
    assert one == ("single", "decode", 0.016, 0.010, 0.012, 0.0, 0.0, 0.0)
    assert two == ("TP 2", "decode", 0.012, 0.008, 0.009, 0.002, 0.001, 0.0)
    assert (two.communication, two.share) == (pytest.approx(0.003), pytest.approx(1 / 3))


def test_what_was_not_told_apart_is_not_split(tmp_path: Path) -> None:
    part = parallel_part(tmp_path)
    name = "communication that is not split"
    part.figures[:] = [
        replace(one, case={**one.case, "part": name}) if one.case.get("part") == "transfer" else one
        for one in part.figures
        if one.case.get("part") != "waiting for other ranks"
    ]
    _, two = steps_of(part)
    assert (two.waiting, two.transfer, two.communication) == (None, None, 0.001)
