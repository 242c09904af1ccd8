"""What a machine can hold of plain English, in docs, messages and docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPO

FEWEST_WORDS = 3
MEDIAN = re.compile(r"\bin the middle\b(?! of (?:a |its |the |training|work|one))", re.IGNORECASE)
VAGUE = re.compile(r"\b(?:nobody|somebody|everybody)\b", re.IGNORECASE)
PAGES = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md") for path in REPO.glob(pattern)
)
MODULES = sorted(path for room in ("flagscale_perf", "benchmarks") for path in (REPO / room).rglob("*.py"))
MOST_PAGES, MOST_WORDS, MOST_OF_README, WIDTH = 12, 35_000, 1_200, 120
DEFINED = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef


def of_page(text: str) -> list[str]:
    """Words for which there are better ones, outside of code."""
    prose = re.sub(r"^```.*?^```$|`[^`\n]*`|\]\([^)]*\)", "", text, flags=re.MULTILINE | re.DOTALL)
    return [found[0] for pattern in (MEDIAN, VAGUE) for found in pattern.finditer(prose)]


def of_module(text: str) -> list[str]:
    """The same of messages; docstrings of fewer than three words, and those that call a median the middle."""
    tree = ast.parse(text)
    docstrings = dict(_docstrings(tree))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            said = docstrings.get(id(node))
            if said is not None and len(said.split()) < FEWEST_WORDS:
                found.append(f"line {node.lineno}: {said!r} says too little")
            patterns = [MEDIAN] if said is not None else [MEDIAN, VAGUE]
            found += [f"line {node.lineno}: {each[0]!r}" for p in patterns if (each := p.search(node.value))]
    return found


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, DEFINED) and (said := ast.get_docstring(node)) is not None:
            first = node.body[0]
            assert isinstance(first, ast.Expr)
            yield id(first.value), said


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(REPO)))
def test_pages_have_the_field_s_words(path: Path) -> None:
    assert of_page(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(REPO)))
def test_messages_and_docstrings_have_them_too(path: Path) -> None:
    assert of_module(path.read_text(encoding="utf-8")) == []


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


def test_what_is_wrong_is_seen() -> None:
    assert of_page("A step takes 3 ms in the middle; nobody waits. `nobody` in the middle of a step.") == [
        "in the middle",
        "nobody",
    ]
    code = '"""A module of two."""\ndef f():\n    """See above."""\n    g("nobody", "3 in the middle")\n'
    assert [each.partition(": ")[2] for each in of_module(code)] == [
        "'See above.' says too little",
        "'nobody'",
        "'in the middle'",
    ]
