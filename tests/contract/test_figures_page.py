"""docs/metrics.md, the table of figures: what is in the code.

`python -m tests.contract.test_figures_page` renews it.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from flagscale_perf.training.figures import FIGURES, Row

PATH = Path(__file__).parents[2] / "docs/metrics.md"
HEAD = "| figure | unit | formula | text log | TensorBoard, W&B | Prometheus | summary |"


def table() -> str:
    """A line for each figure; figures of one formula share theirs."""
    lines = [HEAD, "| --- " * HEAD.count(" | ") + "| --- |"]
    for (meaning, _), alike in groupby(FIGURES, lambda figure: (figure.meaning, figure.unit)):
        lines.append(_line(meaning, list(alike)))
    return "".join(f"{line}\n" for line in lines)


def _line(meaning: str, alike: list[Row]) -> str:
    gauges = {figure.gauge.name: figure.gauge.label for figure in alike if figure.gauge}
    cells = [
        _codes(figure.key for figure in alike),
        alike[0].unit.name,
        meaning,
        ", ".join(figure.column.title if figure.column else figure.flag for figure in alike),
        _codes(figure.curve.tag for figure in alike if figure.curve),
        _codes(name + (f"{{{label[0]}}}" if label else "") for name, label in gauges.items()),
        _codes(figure.summary_key or figure.key for figure in alike if figure.in_summary),
    ]
    return "| " + " | ".join(cell.strip(", ") for cell in cells) + " |"


def _codes(names) -> str:
    return ", ".join(f"`{name}`" for name in names)


def page_with(rows: str) -> str:
    page = PATH.read_text(encoding="utf-8")
    start = page.index(HEAD)
    return page[:start] + rows + page[page.index("\n\n", start) + 1 :]


def test_the_table_is_the_codes() -> None:
    assert PATH.read_text(encoding="utf-8") == page_with(table()), (
        "renew it: python -m tests.contract.test_figures_page"
    )


if __name__ == "__main__":
    PATH.write_text(page_with(table()), encoding="utf-8")
