"""The docs are short enough to be read, and their lines to be compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import REPO

MOST_PAGES, MOST_WORDS, MOST_OF_README, WIDTH = 14, 39_300, 1_200, 120


def test_the_docs_are_a_few_pages_that_can_be_read() -> None:
    pages = {path.name: path.read_text(encoding="utf-8") for path in (REPO / "docs").glob("*.md")}
    assert len(pages) <= MOST_PAGES
    assert sum(len(text.split()) for text in pages.values()) <= MOST_WORDS


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_the_first_page_is_read_in_minutes(name: str) -> None:
    assert len((REPO / name).read_text(encoding="utf-8").split()) <= MOST_OF_README


@pytest.mark.parametrize(
    "path", sorted([*REPO.glob("*.md"), *(REPO / "docs").glob("*.md")]), ids=lambda path: path.name
)
def test_lines_of_a_page_fit_a_diff(path: Path) -> None:
    """Tables, code and links that cannot be broken aside."""
    prose = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in prose.splitlines() if not line.startswith(("|", "    ", "<!--", "!["))]
    assert [line for line in lines if len(line) > WIDTH and " " in line[WIDTH // 2 : WIDTH]] == []
