"""The README's commands: the same in both languages, and each of them walked (tests/walk)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.walk.places import NoIndexError, ask_index
from tests.walk.readme import commands
from tests.walk.steps import STEPS

REPO = Path(__file__).parents[2]
PAGES = ("README.md", "README.zh-CN.md")


def commands_of(page: str) -> list[str]:
    return commands((REPO / page).read_text(encoding="utf-8"))


def test_both_languages_tell_the_same_commands() -> None:
    english, chinese = map(commands_of, PAGES)
    assert english == chinese


def test_every_command_is_walked_and_nothing_else_is() -> None:
    walked = [step.command for step in STEPS]
    assert len(walked) == len(set(walked))
    assert set(commands_of("README.md")) == set(walked), "add its row to tests/walk/steps.py, or take one out"


def test_what_is_not_walked_says_why() -> None:
    assert all(bool(step.instead) == (step.place is None) == (not step.typed) for step in STEPS)


def test_without_an_index_the_walk_has_a_reason_to_skip(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(NoIndexError, match="^ERROR: No matching distribution found for mdurl$"):
        ask_index(Path(sys.executable).parent, tmp_path)


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("```bash\nmake a   # why\nmake b \\\n  C=1\n# alone\n```\n", ["make a", "make b C=1"]),
        ("```\nmake a\n```\n```python\nmake b\n```\n", []),
        ("Type `make a`, `pip`, not `makes a` and `./x/pip install y`.", ["make a", "./x/pip install y"]),
        ("`tail -f` it:\n```bash\ntail -f x\ntail -f x\n```\nor `tail -f x`", ["tail -f x"]),
        ("```bash\nmake a\nmake a b\n```", ["make a", "make a b"]),
    ],
)
def test_commands_of_a_page(page: str, found: list[str]) -> None:
    assert commands(page) == found
