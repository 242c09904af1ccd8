"""Every test file says in its first lines which promise it holds; every promise of SECURITY.md and
docs/operations.md names its test.
"""

from __future__ import annotations

import ast
import re

import pytest

from tests.conftest import REPO

FEWEST_WORDS = 4
NAMED = re.compile(r"`(tests/[\w/.]+)`")
PROMISES, LIMITS = "What is promised", "What is not promised"
NO_PROMISE = {"How to report"}


def offence(text: str) -> str | None:
    """What is wrong with the beginning of a test file."""
    said = ast.get_docstring(ast.parse(text)) or ""
    if not said or not text.startswith('"""'):
        return "does not begin with what it holds"
    if len(said.split()) < FEWEST_WORDS:
        return f"says only {said!r}"
    return None


def unheld(page: str) -> list[str]:
    """What names no test: rows of promises, limits with a figure in them, and other sections as a whole."""
    found = []
    for section in page.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        if title in NO_PROMISE:
            continue
        claims = [f"## {title}"] if not NAMED.search(text) else []
        if title == PROMISES:
            claims = [line for line in text.splitlines() if line.startswith("| ")][2:]
        elif title == LIMITS:
            claims = [
                item for item in re.findall(r"^- .*(?:\n  .*)*", text, re.MULTILINE) if re.search(r"\d", item)
            ]
        found += [claim for claim in claims if not NAMED.search(claim)]
    return found


def test_every_test_file_says_what_it_holds() -> None:
    files = sorted((REPO / "tests").rglob("test_*.py"))
    found = [
        f"{path.relative_to(REPO)} {what}" for path in files if (what := offence(path.read_text("utf-8")))
    ]
    assert files
    assert found == []


def test_a_file_that_says_nothing_or_its_own_name_is_seen() -> None:
    assert offence("import os\n") == "does not begin with what it holds"
    assert offence('# by us\n"""Rings lose no record."""\n') == "does not begin with what it holds"
    assert offence('"""flagscale_perf.spine.ring"""\n') == "says only 'flagscale_perf.spine.ring'"
    assert offence('"""A ring loses nothing."""\n') is None


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/operations.md"])
def test_every_promise_names_tests_that_are_there(page: str) -> None:
    text = (REPO / page).read_text("utf-8")
    assert unheld(text) == []
    assert [name for name in NAMED.findall(text) if not (REPO / name).exists()] == []


PAGE = """# Page

## What is promised

| promise | held by |
| --- | --- |
| fast | `tests/fuzz` |
| right | us |

## What is not promised

- Luck.
- More than 4 s of
  it.
- 60 s (`tests/faults`).

## How

Well.
"""


def test_a_promise_without_a_test_is_seen() -> None:
    assert unheld(PAGE) == ["| right | us |", "- More than 4 s of\n  it.", "## How"]
