"""Prints the table of hosts and rows behind the tests."""

from __future__ import annotations

import platform
from importlib.metadata import version

import pytest

from tests.hosts.rows import ROWS

SHOWN = {"passed": "yes", "failed": "NO", "skipped": "-"}


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    cells: dict[str, dict[str, str]] = {}
    for outcome, shown in SHOWN.items():
        for report in terminalreporter.stats.get(outcome, []):
            for key, value in getattr(report, "user_properties", []):
                if key == "matrix":
                    name, row = value.split("|")
                    cells.setdefault(name, {})[row] = shown
    if cells:
        terminalreporter.write_line("\n".join(["", *table(cells), "", environment()]))


def table(cells: dict[str, dict[str, str]]) -> list[str]:
    """In Markdown: a host a line, in the order of their tests; a row that was not run is empty."""
    lines = [["host", *ROWS], ["---"] * (len(ROWS) + 1)]
    lines += [[name, *(row.get(each, "") for each in ROWS)] for name, row in cells.items()]
    return [f"| {' | '.join(line)} |" for line in lines]


def environment() -> str:
    """What all of them ran with."""
    return f"Python {platform.python_version()}, torch {version('torch')}"
