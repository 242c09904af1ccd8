"""docs/reading.md against the code, and docs/generated as the code makes it (`make pages` renews it)."""

from __future__ import annotations

import pytest

from flagscale_perf.cli.report import FORMATS, PARQUET
from flagscale_perf.report.text import SCREEN_LINES, SCREEN_WIDTH
from flagscale_perf.training.analysis.findings.case import MIN_STEPS
from flagscale_perf.training.analysis.findings.signals import SLOW_STEP
from tests.conftest import REPO
from tests.golden import golden
from tests.pages import DIRECTORY, PAGES

PAGE = (REPO / "docs/reading.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_the_code_s(name: str) -> None:
    assert (DIRECTORY / name).read_text(encoding="utf-8") == PAGES[name](), "renew it: make pages"


def test_the_limits_in_the_text_are_the_code_s() -> None:
    assert f"more than {SLOW_STEP.value:g} times the median of the 64 steps" in WORDS
    assert f"fewer than {MIN_STEPS.value:g} steps (`min_steps`)" in WORDS
    assert f"({SCREEN_LINES} lines of {SCREEN_WIDTH} columns)" in WORDS


def test_it_has_every_format() -> None:
    assert f"[--format {'|'.join((*FORMATS, PARQUET))}]" in PAGE
    assert [name for name in (*FORMATS, PARQUET) if f"| `{name}` |" not in PAGE] == []


@pytest.mark.parametrize("name", ["perf_metrics_breakdown.log", "perf_metrics_columns.log"])
def test_its_samples_of_the_log_are_what_is_written(name: str) -> None:
    _, _, _, titles, rule, _, first, _ = golden(name).splitlines()
    assert f"```\n{titles}\n{rule}\n{first}\n```" in PAGE


@pytest.mark.parametrize(("page", "lines"), [("metrics.md", 6), ("operations.md", 4)])
def test_a_page_shows_what_the_report_prints(page: str, lines: int) -> None:
    text = (REPO / "docs" / page).read_text(encoding="utf-8")
    (sample,) = [part for part in text.split("```")[1::2] if part.startswith(("\nKey figures", "\nRun "))]
    assert sample.strip("\n") in golden("report_screen.txt") and sample.strip().count("\n") == lines - 1


def test_the_sample_of_calls_is_the_golden_log() -> None:
    page = (REPO / "docs/rpc.md").read_text(encoding="utf-8")
    sample = page[page.index("```\nZeroMQ Performance Log") + 4 :].split("```")[0].splitlines()
    made = golden("zmq_performance.log").splitlines()
    assert all(line.startswith(shown) for shown, line in zip(sample, made, strict=False)) and len(sample) == 8
