"""A delay on the rank that the other one waits for is felt whole; one behind its longer work is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.analysis.run_file import find_run_file
from flagscale_perf.profile.analysis.report import read_report
from tests.gloo_ranks import two_ranks

pytestmark = pytest.mark.alone


def test_the_slopes_of_delays_on_two_ranks_and_in_an_operator(tmp_path: Path) -> None:
    """Rank 1 computes 40 ms longer than rank 0, so that delays of 10 and 20 ms are hidden on rank 0. The
    interval says how sure a slope is on the machine as it was.
    """
    said = two_ranks("tests.gloo_delays", tmp_path, "0:0,1:0,1:0.inner:aten::addmm,ms=10/20")
    assert [(each["middle"], each["end"]) for each in said] == [(1, 0), (2, 0)]  # hooks
    assert len(said[0]["results"]) == 1 and said[0]["results"] == said[1]["results"]  # to the bit

    report = read_report(find_run_file(tmp_path / "profile"))
    causal = report.causal
    assert causal is not None
    assert (causal.steps, causal.untouched) == (79, 19)  # without the first, which has none before it
    found = {effect.name: effect for effect in causal.effects}
    hidden = found.pop("rank 0, 0")
    assert set(found) == {"rank 1, 0", "rank 1, 0.inner, aten::addmm"}
    for effect, slope in [(hidden, 0.0), *((each, 1.0) for each in found.values())]:
        assert effect.slope == pytest.approx(slope, abs=0.2), effect
        assert (effect.low or 0) - 0.1 <= slope <= (effect.high or 0) + 0.1, effect
    assert causal.effects[-1] is hidden
    waits = [each.title for each in report.findings if each.name == "felt_delay"]
    assert waits == ["The step waits for rank 1, 0"]  # the product itself is no 2 % of a step
