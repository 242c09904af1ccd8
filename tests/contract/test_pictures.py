"""Every picture of docs is made by `make pictures` and shown; the README shows the instruments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cited import pages
from tests.conftest import REPO
from tests.pictures import FIGURE, IMAGES, PAGES, WATCH

MADE = {view.image for page in PAGES.values() for view in page.views} | {WATCH, FIGURE}
README_SHOWS = ["first_screen.png", "calls.png", "trace.png", "profile.png", "bench.png"]


def shown(page: Path) -> list[str]:
    return re.findall(r"!\[[^]]+\]\([\w/.]*images/([\w.]+)\)", page.read_text(encoding="utf-8"))


def test_a_picture_is_made_by_the_command_and_shown() -> None:
    assert {path.name for path in IMAGES.iterdir()} == MADE
    assert {name for page in pages() for name in shown(page)} == MADE


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_readme_shows_each_instrument(page: str) -> None:
    assert shown(REPO / page) == README_SHOWS
