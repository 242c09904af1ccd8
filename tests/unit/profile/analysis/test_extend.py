"""What others add to the report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flagscale_perf.profile.analysis import blocks, extend
from flagscale_perf.profile.analysis.instrument import report_of
from flagscale_perf.profile.analysis.source import Profile
from flagscale_perf.report import text
from flagscale_perf.spine.errors import PerfError

ADDED = """
from flagscale_perf.analysis.blocks import Lane, Stripe, Waterfall
from flagscale_perf.profile.analysis.extend import chart, metric, register_operator

register_operator("aten::silu", "gate")

@metric
def matmul_ms(report):
    return report.main.by(lambda cell: cell.kind)["matmul"].self_ns / 1e6

@chart
def runs_by_kind(report):
    amounts = report.main.by(lambda cell: cell.kind)
    lanes = [Lane(kind, 0.0, [Stripe("runs", one.runs, None, "blue")]) for kind, one in amounts.items()]
    return Waterfall("runs_by_kind", "Runs by kind", "runs", lanes, 10.0)
"""


@pytest.fixture(name="module")
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "profile_additions.py").write_text(ADDED)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "profile_additions"
    extend.forget()


def test_an_operator_a_figure_and_a_chart(module: str, profile: Profile) -> None:
    extend.load((module,))
    found = report_of(profile)
    shown = text.render(blocks.report_of(found))
    assert found.metrics == {"matmul_ms": 61.5}
    assert found.sums["train"].kinds[-1] == "gate"
    assert "matmul_ms       61.5\n" in shown
    assert "  Runs by kind, runs\n" in shown
    extend.forget()
    assert report_of(profile).metrics == {}


def test_a_module_that_is_not_there() -> None:
    with pytest.raises(PerfError, match="'no_such_module' cannot be imported"):
        extend.load(("no_such_module",))
