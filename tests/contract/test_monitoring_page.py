"""docs/monitoring.md shows the text log as the code writes it."""

from pathlib import Path

import pytest

from tests.golden import golden

PAGE = (Path(__file__).parents[2] / "docs/monitoring.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["perf_metrics_breakdown.log", "perf_metrics_columns.log"])
def test_its_samples_are_what_is_written(name: str) -> None:
    _, _, _, titles, rule, _, first, _ = golden(name).splitlines()
    assert f"```\n{titles}\n{rule}\n{first}\n```" in PAGE
