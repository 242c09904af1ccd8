"""docs/metrics.md, "Who is late", has the limits of the code."""

from __future__ import annotations

from flagscale_perf.training.clocks import LOWER_CLOCK
from flagscale_perf.training.ledger import naming
from flagscale_perf.training.ranks.late import OVER, SUSPECT_STEPS
from flagscale_perf.training.ranks.rows import KEPT_UNITS
from tests.conftest import REPO

PAGE = (REPO / "docs/metrics.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("### Who is late") : PAGE.index("### What cannot be told")]
TABLE = {
    cells[1].strip(): cells[2].strip()
    for line in SECTION.splitlines()
    if len(cells := line.split("|")) == 5 and "---" not in line
}


def test_the_table_has_the_limits_of_the_code() -> None:
    assert TABLE["fewest steps"] == str(naming.FEWEST.count)
    assert TABLE["steady"].startswith(f"{100 * naming.STEADY.value:g} % of a step")
    assert TABLE["chance"].startswith(f"{100 * naming.CHANCE.value:g} %")
    single = f"{100 * naming.EVENT.value:g} % of a step and {naming.EVENT_SCATTER.value:g} times"
    assert TABLE["single steps"].startswith(single)
    assert f"in {naming.FEWEST_EVENTS} steps or more" in TABLE["single steps"]
    assert TABLE["stop"] == f"{naming.STOP.value:g} usual steps"
    assert TABLE["live"].startswith(f"{100 * naming.LIVE.value:g} % of a step")
    assert OVER == 0.5 and TABLE["over"].startswith("below half of the live share")


def test_the_text_has_them_too() -> None:
    assert f"every unit of up to {KEPT_UNITS}" in SECTION
    assert f"in {SUSPECT_STEPS} of the last {naming.FEWEST.count} steps" in SECTION
    assert f"more than {100 * (1 - LOWER_CLOCK.value):.0f} % below its peers'" in SECTION
