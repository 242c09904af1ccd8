"""The figures of the last whole run, and the table that docs/operations.md shows of them."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.catalog import CATALOG
from tests.faults.fault import NOTHING, Fault

REPO = Path(__file__).parents[2]
LAST_RUN = Path(__file__).with_name("last_run.json")
PAGE = REPO / "docs/operations.md"
BEGIN, END = "<!-- table of faults: made by `make faults` -->", "<!-- end of the table -->"

Record = Callable[[str, dict[str, int]], None]


def read() -> dict[str, Any]:
    """Machine and figures by fault."""
    return json.loads(LAST_RUN.read_text())


def write(noted: dict[str, dict[str, int]]) -> None:
    """Puts the figures in the place of those of the last run, and the table into the page."""
    earlier = read()["faults"] if LAST_RUN.exists() else {}
    faults = {
        fault.name: figures
        for fault in CATALOG
        if (figures := noted.get(fault.name, earlier.get(fault.name)))
    }
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    LAST_RUN.write_text(json.dumps({"machine": machine, "faults": faults}, indent=1) + "\n")
    head, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n{table()}{END}{tail}")


def table() -> str:
    """Of the page: a row for every fault of the last run."""
    last = read()
    rows = [_row(fault, last["faults"][fault.name]) for fault in CATALOG if fault.name in last["faults"]]
    head = (
        "| fault | injected | training | may be missing | iterations | steps kept | longest stall, ms | "
        "later exit, ms | lines |\n"
    )
    return (
        f"Measured on {last['machine']}.\n\n{head}"
        f"| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n{''.join(rows)}"
    )


def _row(fault: Fault, figures: dict[str, int]) -> str:
    times = f", {figures['times']} times" if figures["times"] > 1 else ""
    missing = "the last step" if fault.ends_early and fault.loses == NOTHING else fault.loses
    cells = [
        fault.name, fault.injected + times, fault.host, missing, figures["done"], figures["kept"],
        figures["stall_ms"], "-" if fault.ends_early else figures["exit_ms"], figures["lines"],
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |\n"
