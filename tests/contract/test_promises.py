"""Every test file says in its first lines which promise it holds."""

from __future__ import annotations

import ast

from tests.conftest import REPO

FEWEST_WORDS = 4


def offence(text: str) -> str | None:
    """What is wrong with the beginning of a test file."""
    said = ast.get_docstring(ast.parse(text)) or ""
    if not said or not text.startswith('"""'):
        return "does not begin with what it holds"
    if len(said.split()) < FEWEST_WORDS:
        return f"says only {said!r}"
    return None


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
