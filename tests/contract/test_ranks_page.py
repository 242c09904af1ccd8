"""docs/metrics.md, "Ranks", against the limits of the code."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.training.clocks import LOWER_CLOCK
from flagscale_perf.training.ranks import limits
from flagscale_perf.training.ranks.robust import FEW, NORMAL

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("### What is compared with what") : PAGE.index("### What cannot be told")]
TABLE = {
    cells[1].strip(): cells[2] + cells[3]
    for line in SECTION.splitlines()
    if len(cells := line.split("|")) == 5 and "---" not in line
}


def share(limit) -> str:
    return f" {100 * limit.value:g} %"


def test_the_table_has_the_limits_of_the_code() -> None:
    assert f" {limits.WINDOW.count} rounds in a row" in TABLE["persistence"]
    assert (
        limits.OVER.value == 0.5 and "half of the share" in TABLE["persistence"] and "half" in TABLE["over"]
    )
    assert share(limits.PEERS_SHARE) in TABLE["share, peers"]
    early, rounds = TABLE["share, few peers, start"], limits.MIN_HISTORY.count + limits.WINDOW.count
    assert share(limits.EARLY_SHARE) in early and f"fewer than {limits.ENOUGH_GROUPS.count} groups" in early
    assert f"first {rounds} rounds" in early
    assert share(limits.PAST_SHARE) in TABLE["share, past"]
    assert f"{share(limits.STAGE_SHARE)}, in {limits.STAGE_WINDOW.count} rounds" in TABLE["share, stages"]
    assert share(limits.ITERATION_SHARE) in TABLE["cost"]
    assert f" {limits.SIGNIFICANCE.value} standard" in TABLE["noise between peers"]
    own = TABLE["noise of a rank's own"]
    assert (
        f" {limits.OWN_SIGNIFICANCE.value} (past: {limits.SIGNIFICANCE.value})" in own
        and f"by {FEW} /" in own
    )


def test_the_text_has_them_too() -> None:
    assert f"up to {limits.HISTORY.count} rounds before the last {limits.WINDOW.count}" in SECTION
    assert f"in the first {limits.STAGE_ROUNDS.count} rounds only" in SECTION
    assert f"(at most {limits.MAX_NAMED.count})" in SECTION
    assert f"{NORMAL} x the median deviation" in SECTION
    assert f"more than {100 * (1 - LOWER_CLOCK.value):.0f} % below its peers'" in SECTION
