"""The figures of the last whole run, and the table that docs/generated/faults.md shows of them."""

from __future__ import annotations

from pathlib import Path

from tests.faults import page
from tests.faults.catalog import CATALOG
from tests.faults.fault import NOTHING, Fault

LAST_RUN = Path(__file__).with_name("last_run.json")
BEGIN = "<!-- table of faults: made by `make faults` -->"
HEAD = (
    "| fault | injected | training | may be missing | iterations | steps kept | longest stall, ms | "
    "later exit, ms | lines |"
)


def write(noted: dict[str, page.Figures]) -> None:
    """Puts the figures in the place of those of the last run, and the table into the page."""
    page.renew(LAST_RUN, [fault.name for fault in CATALOG], noted)
    page.show(BEGIN, table())


def table() -> str:
    """Of the page: a row for every fault of the last run."""
    last = page.read(LAST_RUN)
    rows = [_row(fault, last["faults"][fault.name]) for fault in CATALOG if fault.name in last["faults"]]
    return page.rows_of(HEAD, last, rows)


def _row(fault: Fault, figures: page.Figures) -> list[object]:
    missing = "the last step" if fault.ends_early and fault.loses == NOTHING else fault.loses
    return [
        fault.name,
        fault.injected + page.times(figures),
        fault.host,
        missing,
        figures["done"],
        figures["kept"],
        figures["stall_ms"],
        "-" if fault.ends_early else figures["exit_ms"],
        figures["lines"],
    ]
