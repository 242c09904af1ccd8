"""The same of a traced job."""

from __future__ import annotations

from pathlib import Path

from tests.faults import page
from tests.faults.catalog_trace import TRACE, TraceFault

LAST_RUN = Path(__file__).with_name("last_run_trace.json")
BEGIN = "<!-- table of a traced job's faults: made by `make faults OF=trace` -->"
HEAD = "| fault | injected | actors x calls | may be missing | calls | kept | said to be lost | lines |"


def write(noted: dict[str, page.Figures]) -> None:
    """Puts the figures in the place of those of the last run, and the table into the page."""
    page.renew(LAST_RUN, [fault.name for fault in TRACE], noted)
    page.show(BEGIN, table())


def table() -> str:
    """Of the page: a row for every fault of the last run."""
    last = page.read(LAST_RUN)
    rows = [_row(fault, last["faults"][fault.name]) for fault in TRACE if fault.name in last["faults"]]
    return page.rows_of(HEAD, last, rows)


def _row(fault: TraceFault, figures: page.Figures) -> list[object]:
    return [
        fault.name,
        fault.injected + page.times(figures),
        f"{fault.actors} x {fault.calls}",
        fault.loses,
        figures["done"],
        figures["kept"],
        figures["lost"],
        figures["lines"],
    ]
