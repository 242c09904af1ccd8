"""docs/report.md against the code."""

from __future__ import annotations

import re
from pathlib import Path

from flagscale_perf.cli.report import FORMATS
from flagscale_perf.training.findings.advice import ADVICE
from flagscale_perf.training.findings.thresholds import THRESHOLDS

PAGE = (Path(__file__).parents[2] / "docs" / "report.md").read_text()


def test_it_has_every_finding_and_every_limit() -> None:
    rows = [
        line.split("|")[1:3]
        for line in PAGE[PAGE.index("| finding |") :].splitlines()
        if line.startswith("| `")
    ]
    findings = [name for row in rows for name in re.findall(r"`(\w+)`", row[0])]
    limits = {name for row in rows for name in re.findall(r"`(\w+)`", row[1])}
    assert sorted(findings) == sorted(ADVICE)
    assert limits == set(THRESHOLDS) - {"slow_step", "min_steps"}  # these two are in the text


def test_the_limits_in_the_text_are_the_code_s() -> None:
    assert f"more than {THRESHOLDS['slow_step'].value:g} times the median of the 64 steps" in PAGE
    assert f"fewer than {THRESHOLDS['min_steps'].value:g} steps (`min_steps`)" in PAGE


def test_it_has_every_format() -> None:
    assert f"[--format {'|'.join(FORMATS)}]" in PAGE
    assert [name for name in FORMATS if f"| `{name}` |" not in PAGE] == []
