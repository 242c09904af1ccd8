"""Parallel efficiency as a report, a verdict and a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.analysis.blocks import Table, Waterfall
from flagscale_perf.bench.analysis.parallelism import SHOWN
from flagscale_perf.bench.analysis.source import Part
from tests.efficiency_runs import parallel_part


def test_verdicts_have_the_requirements_thresholds(tmp_path: Path) -> None:
    tensor, pipeline = SHOWN.verdicts(parallel_part(tmp_path))
    assert (tensor.value, tensor.verdict, tensor.excellent, tensor.improve) == (0.625, "good", 0.75, 0.5)
    assert (pipeline.value, pipeline.verdict, pipeline.excellent, pipeline.improve) == (0.6, "good", 0.6, 0.4)
    for one in SHOWN.verdicts(Part("parallelism")):
        assert (one.value, one.verdict, one.remark) == (None, None, "no such arm was measured")


def test_repetitions_that_differ_by_half_decide_nothing(tmp_path: Path) -> None:
    part = parallel_part(tmp_path)
    first, *_ = part.of("duration", arm="TP 2")
    part.points[part.points.index(first)] = replace(first, samples=[2.4])
    tensor, _ = SHOWN.verdicts(part)
    assert (tensor.value, tensor.verdict) == (None, None)
    assert tensor.remark.startswith("no verdict: ")


def test_sections_tables_and_pictures(tmp_path: Path) -> None:
    part = parallel_part(tmp_path)
    (efficiency,) = SHOWN.sections(part)
    tables = [block for block in efficiency.blocks if isinstance(block, Table)]
    assert [row[0] for row in tables[0].rows] == ["TP 2", "PP 2"]
    assert tables[1].rows[0][0] == "TP 2"  # memory
    (bars,) = [block for block in SHOWN.drawn(part) if isinstance(block, Waterfall)]
    assert [stripe.value for stripe in bars.lanes[0].parts] == [62.5]
    assert SHOWN.sections(Part("parallelism")) == SHOWN.drawn(Part("parallelism")) == []


def test_the_file_has_speedup_efficiency_overhead_and_memory(tmp_path: Path) -> None:
    made = SHOWN.content(parallel_part(tmp_path))
    (entry,) = [one for one in made["results"] if one["arm"] == "TP 2" and one["what"].startswith("a batch")]
    assert (entry["speedup"], entry["efficiency"], entry["memory_gb"], entry["unit"]) == (
        1.25,
        0.625,
        4.0,
        "s",
    )
    assert entry["beyond_its_share"] == pytest.approx(0.3)
