"""`make golden`: writes every golden file anew from the code, and prints what changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden import GIVEN, Golden, difference, files

TESTS = Path(__file__).parents[1]
EVERY = "rpc or not rpc"
MOST_LINES = 40  # of one file's difference; the rest is left to git diff


def main() -> int:
    """Runs the tests of golden files twice, to renew them and to prove it. Returns the exit code."""
    before = files()
    users = [
        str(path)
        for room in ("unit", "tee_gpu")
        for path in sorted((TESTS / room).rglob("test_*.py"))
        if "golden(" in path.read_text()
    ]
    Golden.renewed = renewed = set()
    pytest.main(["-q", "--no-header", "--no-summary", "-m", EVERY, *users])
    # In a process of its own: a test module may keep a part of a file that it read when it was imported.
    passed = (
        subprocess.run([sys.executable, "-m", "pytest", "-q", "--no-header", "-m", EVERY, *users]).returncode
        == 0
    )
    after = files()
    print(summary(before, after))
    unused = sorted(after.keys() - renewed - GIVEN)
    if unused:
        print(f"no test compares these with an output: {', '.join(unused)}; delete them or compare them")
    if not passed:
        print("some tests fail with the new files, too: see above")
    return 0 if passed and not unused else 1


def summary(before: dict[str, str], after: dict[str, str]) -> str:
    """For each changed file the number of lines added and removed, and the lines themselves."""
    lines = []
    for name, text in after.items():
        changes = difference(before.get(name, ""), text, name)
        if not changes:
            continue
        added = sum(line.startswith("+") and not line.startswith("+++") for line in changes)
        removed = sum(line.startswith("-") and not line.startswith("---") for line in changes)
        lines += [f"{name}: {added} lines added, {removed} removed", *changes[2:][:MOST_LINES]]
        if len(changes) - 2 > MOST_LINES:
            lines.append(f"... {len(changes) - 2 - MOST_LINES} more lines: git diff tests/golden/{name}")
    return "\n".join(lines) or "every golden file is as it was"


if __name__ == "__main__":
    sys.exit(main())
