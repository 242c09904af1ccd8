"""The head of a result: when, how and where it was measured, and which code; results whose code has changed.

python -m benchmarks.provenance, or make bench-stale
"""

from __future__ import annotations

import ast
import datetime
import hashlib
import os
import platform
import re
import shlex
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
RESULTS = "benchmarks/results"
FIELDS = ("date", "command", "machine", "code")
_DATE = re.compile(r"^date +(\S+)", re.MULTILINE)
_CODE = re.compile(r"^code +(.+)$", re.MULTILINE)
_DEFINED = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef


def head(*rooms: str) -> str:
    """The first lines of every result.

    Args:
        rooms: what it measures: folders and modules of the package, or paths from the top of the repository.
    """
    command = " ".join(shlex.quote(word.replace(f"{REPO}/", "")) for word in sys.orig_argv[1:])
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return "\n".join(
        [
            f"date     {datetime.date.today()}",
            f"command  python {command}",
            f"machine  {machine}, load {os.getloadavg()[0]:.1f}",
            f"code     {', '.join(f'{room} {fingerprint(room)}' for room in rooms)}",
        ]
    )


def fingerprint(room: str, repo: Path = REPO) -> str:
    """A hash of a room's code, "gone" where there is none. Docstrings, blank lines and lines that are only a
    comment do not count; formatting does.
    """
    inside = repo / "flagscale_perf" / room
    place = inside if inside.exists() else repo / room
    files = [place] if place.is_file() else sorted([*place.rglob("*.py"), *place.rglob("*.c")])
    if not files:
        return "gone"
    total = hashlib.sha256()
    for path in files:
        text = path.read_text(encoding="utf-8")
        code = _code(text) if path.suffix == ".py" else text
        total.update(f"{path.relative_to(repo)}\n{code}\n".encode())
    return total.hexdigest()[:12]


def changed(result: str, repo: Path = REPO) -> list[str]:
    """The rooms whose code is not what a result's heads name."""
    measured = [room.split() for code in _CODE.findall(result) for room in code.split(", ")]
    return sorted({room for room, code in measured if fingerprint(room, repo) != code})


def results(repo: Path = REPO) -> list[Path]:
    """Every file of results."""
    return sorted((repo / RESULTS).iterdir())


def _code(text: str) -> str:
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _DEFINED) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            for number in range(docstring.lineno - 1, docstring.end_lineno or docstring.lineno):
                lines[number] = ""
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))


def main() -> None:
    """Prints a line for each result that is older than its code."""
    for path in results():
        text = path.read_text(encoding="utf-8")
        if rooms := changed(text):
            dates = ", ".join(_DATE.findall(text))
            print(f"{path.relative_to(REPO)}: measured {dates}; changed since: {', '.join(rooms)}")


if __name__ == "__main__":
    main()
