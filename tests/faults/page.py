"""The page that shows what the last runs of the fault suite have found, and the words of its tables."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs/generated/faults.md"
END = "<!-- end of the table -->"
# what may be missing after a fault
NOTHING, REMOVED, LATER, ALL = "nothing", "what was removed", "what comes after it", "every record"
ELSEWHERE = "nothing: it is below $TMPDIR"

Figures = dict[str, int]
Record = Callable[[str, Figures], None]


def recorder(config: pytest.Config, write: Callable[[dict[str, Figures]], None]) -> Iterator[Record]:
    """Notes figures by fault; a run with --record writes them at its end."""
    noted: dict[str, Figures] = {}
    yield noted.__setitem__
    if noted and config.getoption("--record", default=False):
        write(noted)


def read(path: Path) -> dict[str, Any]:
    """Date, machine and figures by fault, of the last run."""
    return json.loads(path.read_text())


def renew(path: Path, names: list[str], noted: dict[str, Figures]) -> None:
    """Puts the figures in the place of those of the last run."""
    earlier = read(path)["faults"] if path.exists() else {}
    faults = {name: figures for name in names if (figures := noted.get(name, earlier.get(name)))}
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    last = {"date": str(datetime.date.today()), "machine": machine, "faults": faults}
    path.write_text(json.dumps(last, indent=1) + "\n")


def shown(begin: str) -> str:
    """What the page shows behind this mark."""
    page = PAGE.read_text()
    start = page.index(begin) + len(begin)
    return page[start : page.index(END, start)]


def show(begin: str, table: str) -> None:
    """Puts the table there."""
    head, _, rest = PAGE.read_text().partition(begin)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{begin}\n{table}{END}{tail}")


def rows_of(head: str, last: dict[str, Any], rows: list[list[object]]) -> str:
    """A table in Markdown of the last run."""
    rule = "| " + " | ".join(["---"] * (head.count("|") - 1)) + " |"
    lines = [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join([f"Measured on {last['date']}, on {last['machine']}.", "", head, rule, *lines, ""])


def times(figures: Figures) -> str:
    """How often, where that was not once."""
    return f", {figures['times']} times" if figures["times"] > 1 else ""
