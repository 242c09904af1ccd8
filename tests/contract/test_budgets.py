"""Each room of the package keeps to its budget of code (docs/house.md); comments and docstrings are free."""

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path
from typing import TypeGuard

from tests.contract import house_rules as rules

REPO = Path(__file__).parents[2]
SUFFIXES = (".py", ".c", ".js", ".css")
SLACK = 0.02  # so that a mend need not come with a cut
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def read_budgets(page: str) -> dict[str, int]:
    """Room -> the figure in the last column of the table; a room without one shares that of its outer one."""
    found = re.findall(r"(?m)^\| `([\w.]+)` \|.*\| ([\d,]+) \|$", page)
    return {room: int(lines.replace(",", "")) for room, lines in found}


def beyond_budget(texts: list[tuple[str, str]], budgets: dict[str, int]) -> list[str]:
    """What each room has that is beyond its budget and the slack."""
    lines = Counter[str]()
    for name, text in texts:
        parts = Path(name).parts
        if len(parts) > 2 and parts[0] == rules.PACKAGE and name.endswith(SUFFIXES):
            inner = ".".join(parts[1:3])
            lines[inner if inner in budgets else parts[1]] += code_lines(name, text)
    return [
        f"{room}: {count:,} lines of code, its budget in docs/house.md is {budgets.get(room, 0):,};"
        " take the difference from another room's"
        for room, count in lines.items()
        if count > budgets.get(room, 0) * (1 + SLACK)
    ]


def code_lines(name: str, text: str) -> int:
    """Lines without comments, docstrings, imports and blank lines."""
    if not name.endswith(".py"):
        lines = map(str.strip, text.splitlines())
        return sum(1 for line in lines if line and not line.startswith(("//", "/*", "* ", "*/")))
    counted: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            counted.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom) or is_docstring(node):
            counted.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(counted)


def is_docstring(node: ast.AST) -> TypeGuard[ast.Expr]:
    """A text that nothing is done with."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def test_each_room_keeps_to_its_budget() -> None:
    page = (REPO / "docs/house.md").read_text()
    assert beyond_budget(rules.read_texts(REPO), read_budgets(page)) == []


def test_a_room_beyond_its_budget_is_seen() -> None:
    rows = [
        "| `a` | `b` | | 1,000 |",
        "| `a.inner` | | | 50 |",
        "| `a.other` | | | |",
        "| `b` | | `torch` | 2 |",
    ]
    budgets = read_budgets("\n".join(rows))
    assert budgets == {"a": 1000, "a.inner": 50, "b": 2}
    files = {
        "a/x.py": 1000,
        "a/other/y.c": 21,
        "a/inner/z.py": 51,
        "a/notes.md": 9,
        "b/z.py": 2,
        "hooks.py": 9,
        "c/new.js": 1,
    }
    texts = [(f"flagscale_perf/{name}", "x\n" * lines) for name, lines in files.items()]
    found = beyond_budget([*texts, ("tests/a/x.py", "x\n" * 9)], budgets)
    assert [row.split(";")[0] for row in found] == [
        "a: 1,021 lines of code, its budget in docs/house.md is 1,000",
        "c: 1 lines of code, its budget in docs/house.md is 0",
    ]


def test_only_lines_that_do_something_count() -> None:
    text = '''"""A module.

Two lines.
"""

import os
from a import (
    b,
)

# why
class A:
    """Text."""

    x = b(  # one
        """two
        three""",
    )
    def f(self) -> None: ...
'''
    assert code_lines("a.py", text) == 6
    assert code_lines("a.c", "/* why */\n\nint x;\n// why\n * why\n") == 1
