"""Every link of a page leads to a file that is there and, where it names one, to a heading."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import REPO

PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/**/*.md", "requirements/*.md")
    for path in REPO.glob(pattern)
)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)")


def anchors(page: str) -> set[str]:
    """Of its headings, as GitHub makes them, and those it sets itself."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page, flags=re.M | re.S), re.M)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in titles)
    made = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain}
    return made | set(re.findall(r'<a id="([^"]+)">', page))


def dead(path: Path) -> list[str]:
    """Links of the page that lead nowhere."""
    found = []
    for name, anchor in LINK.findall(path.read_text(encoding="utf-8")):
        target = (path.parent / name).resolve() if name else path
        is_there = target.exists()
        if anchor and is_there and target.suffix == ".md":
            is_there = anchor in anchors(target.read_text(encoding="utf-8"))
        if not is_there:
            found.append(f"{name}#{anchor}" if anchor else name)
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(REPO)))
def test_every_link_leads_somewhere(path: Path) -> None:
    assert dead(path) == []


def test_a_dead_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("# One `two`, three\n[a](#one-two-three) [b](#four) [c](b.md) [d](a.md#one)\n")
    assert dead(page) == ["#four", "b.md", "a.md#one"]
