"""A delay on the rank that the other one waits for is felt, and one behind its longer work is not."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.run_file import find_run_file
from flagscale_perf.profile.analysis.report import read_report
from tests.gloo_ranks import two_ranks

DELAYS = "0:0,1:0,1:0.inner:aten::addmm,ms=40/80,rounds=7"
WORK_MS = "5/165"


def test_delays_on_the_rank_that_is_waited_for_are_felt_and_those_on_the_other_one_are_not(
    tmp_path: Path,
) -> None:
    """Rank 1 computes 160 ms longer than rank 0, so that delays of 40 and 80 ms are hidden on rank 0, and a
    busy machine does not make up for what is left. How near slopes are to 0 and 1 where nothing disturbs is
    in `make bench NAME=profile_truth`, and what disturbance does to them in `tests/unit/profile/analysis`.
    """
    said = two_ranks("tests.gloo_delays", tmp_path, DELAYS, WORK_MS)
    assert [(each["middle"], each["end"]) for each in said] == [(1, 0), (2, 0)]  # hooks
    assert len(said[0]["results"]) == 1 and said[0]["results"] == said[1]["results"]  # to the bit

    report = read_report(find_run_file(tmp_path / "profile"))
    causal = report.causal
    assert causal is not None
    assert causal.steps == 7 * 8 - 1  # without the first, which has none before it
    found = {effect.name: effect for effect in causal.effects}
    hidden = found.pop("rank 0, 0")
    assert set(found) == {"rank 1, 0", "rank 1, 0.inner, aten::addmm"}
    assert hidden.slope is not None and hidden.slope < 0.5, hidden
    for effect in found.values():
        assert effect.slope is not None and 0.5 < effect.slope < 1.5, effect
        planted_ns = [planted for planted, _ in effect.planted_ns]
        assert len(planted_ns) == 2 and planted_ns[0] >= 40e6 and planted_ns[1] >= 80e6, effect
    assert causal.effects[-1] is hidden
    waits = [each.title for each in report.findings if each.name == "felt_delay"]
    assert "The step waits for rank 1, 0" in waits
    assert not any(title.startswith("The step waits for rank 0") for title in waits)
