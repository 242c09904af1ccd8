"""docs/report.md against the code."""

from __future__ import annotations

import re
from pathlib import Path

from flagscale_perf.cli.report import FORMATS
from flagscale_perf.training.analysis.findings.case import MIN_STEPS
from flagscale_perf.training.analysis.findings.findings import RULES
from flagscale_perf.training.analysis.findings.signals import SLOW_STEP

PAGE = (Path(__file__).parents[2] / "docs" / "report.md").read_text()


def test_it_has_every_finding_and_every_limit() -> None:
    rows = [
        [re.findall(r"`(\w+)`", cell) for cell in line.split("|")[1:3]]
        for line in PAGE[PAGE.index("| finding |") :].splitlines()
        if line.startswith("| `")
    ]
    listed = {
        name: {limit for limit in limits if len(names) == 1 or limit.startswith(name)}
        for names, limits in rows
        for name in names
    }
    assert listed == {rule.name: set(rule.limits) for rule in RULES}


def test_the_limits_in_the_text_are_the_code_s() -> None:
    assert f"more than {SLOW_STEP.value:g} times the median of the 64 steps" in PAGE
    assert f"fewer than {MIN_STEPS.value:g} steps (`min_steps`)" in PAGE


def test_it_has_every_format() -> None:
    assert f"[--format {'|'.join(FORMATS)}]" in PAGE
    assert [name for name in FORMATS if f"| `{name}` |" not in PAGE] == []
