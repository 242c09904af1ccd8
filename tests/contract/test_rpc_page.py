"""docs/rpc.md, its tables and its sample: what is in the code.

`python -m tests.contract.test_rpc_page` renews the tables.
"""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.rpc.analysis.findings import RULES
from flagscale_perf.rpc.figures import TABLE
from flagscale_perf.rpc.summary import RpcMetrics
from tests.golden import golden

PATH = Path(__file__).parents[2] / "docs/rpc.md"
COLUMNS, FINDINGS = "| column | CSV | unit | meaning |", "| finding | limit | source |"


def columns() -> list[str]:
    """A line for each column of the log."""
    return [
        f"| `{figure.as_column().title}` | `{figure.key}` | {figure.unit.name} | {figure.meaning} |"
        for figure in TABLE.figures
    ]


def findings() -> list[str]:
    """A line for each limit of each finding."""
    lines = []
    for rule in RULES:
        for name, limit in rule.limits.items():
            value = f"{100 * limit.value:g} %" if limit.unit == "share" else f"{limit.value:g} {limit.unit}"
            doc = (rule.judge.__doc__ or "").strip().rstrip(".")
            lines.append(f"| `{rule.name}`: {doc} | `{name}` {value.strip()} | {limit.source} |")
    return lines


def page_with(page: str, head: str, rows: list[str]) -> str:
    """The page with these rows below this head."""
    start = page.index(head) + len(head)
    rule = page[start : page.index("\n", start + 1) + 1]
    rest = page[start + len(rule) :]
    return page[:start] + rule + "".join(f"{row}\n" for row in rows) + rest[_end(rest) :]


def _end(rest: str) -> int:
    """Where the table's rows end."""
    place = 0
    while rest.startswith("|", place):
        place = rest.index("\n", place) + 1
    return place


def renewed(page: str) -> str:
    """The page as the code has it."""
    return page_with(page_with(page, COLUMNS, columns()), FINDINGS, findings())


def test_the_tables_are_the_codes() -> None:
    page = PATH.read_text(encoding="utf-8")
    assert page == renewed(page), "renew it: python -m tests.contract.test_rpc_page"


def test_the_sample_is_the_golden_log() -> None:
    page = PATH.read_text(encoding="utf-8")
    sample = page[page.index("```\nZeroMQ Performance Log") + 4 :].split("```")[0].splitlines()
    made = golden("zmq_performance.log").splitlines()
    assert all(line.startswith(shown) for shown, line in zip(sample, made, strict=False)) and len(sample) == 8


def test_it_names_every_metric() -> None:
    page = PATH.read_text(encoding="utf-8")
    assert [name for name in RpcMetrics.table if name not in page] == []


if __name__ == "__main__":
    PATH.write_text(renewed(PATH.read_text(encoding="utf-8")), encoding="utf-8")
