"""docs/generated/faults.md shows the last run of the fault suite, docs/troubleshooting.md every message."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.contract import house_rules as rules
from tests.faults import page, results, results_trace
from tests.faults.catalog import CATALOG
from tests.faults.catalog_trace import TRACE

REPO = Path(__file__).parents[2]
PAGE = (REPO / "docs/troubleshooting.md").read_text(encoding="utf-8")
SAYS = {
    "_complain",
    "_tell",
    "say",
    "_note",
    "_nothing_but",
    "event",
    "_event",
    "_announce",
    "print",
    "Remark",
    "_say_hung",
}
SPEAKERS = ("spine", "device", "flops", "sinks", "training", "writer", "hosts", "hooks", "perf_logger")
# the lines of the log, and reports
NOT_SPOKEN = ("flagscale_perf/sinks/text_format.py", "flagscale_perf/training/analysis/")
LITERAL = re.compile(r"[A-Za-z].{8,}")  # of a text, what a reader could search the page for


@pytest.mark.parametrize("made", [results, results_trace], ids=["a training", "a traced job"])
def test_the_table_is_made_of_the_last_run(made: ModuleType) -> None:
    assert page.shown(made.BEGIN) == f"\n{made.table()}"


def test_every_fault_of_the_catalog_was_in_the_last_run() -> None:
    assert list(page.read(results.LAST_RUN)["faults"]) == [fault.name for fault in CATALOG]
    assert list(page.read(results_trace.LAST_RUN)["faults"]) == [fault.name for fault in TRACE]


def said(source: rules.Source) -> set[str]:
    """The fixed parts of the texts that the source hands to whoever says or records them, and of the sinks'
    costs.
    """
    texts = [arg for call, name in source.calls() if name.split(".")[-1] in SAYS for arg in call.args]
    for node in source.nodes:
        target = (
            node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else ""
        )
        names = (
            [t.id for t in node.targets if isinstance(t, ast.Name)]
            if isinstance(node, ast.Assign)
            else [target]
        )
        if (
            isinstance(node, ast.Assign | ast.AnnAssign)
            and {"cost", "text"} & set(names)
            and node.value is not None
        ):
            texts.append(node.value)
    return {part for text in texts for part in parts_of(text)}


def parts_of(text: ast.expr) -> list[str]:
    pieces = text.values if isinstance(text, ast.JoinedStr) else [text]
    constants = [p.value for p in pieces if isinstance(p, ast.Constant) and isinstance(p.value, str)]
    words = [c.removeprefix("flagscale_perf: ").strip(" :;()") for c in constants]
    return [word for word in words if LITERAL.fullmatch(word)]


@pytest.mark.parametrize(
    "source",
    [
        s
        for s in rules.read_sources(REPO, "flagscale_perf/")
        if s.room in SPEAKERS and not s.name.startswith(NOT_SPOKEN)
    ],
    ids=lambda s: s.name,
)
def test_every_message_is_on_the_page(source: rules.Source) -> None:
    missing = [text for text in sorted(said(source)) if any(part not in PAGE for part in text.split("; "))]
    assert missing == []


def test_a_message_that_is_not_on_the_page_is_seen() -> None:
    source = rules.Source(
        "sinks/x.py", 'def f(self):\n    self._tell("failure", f"the {thing} has melted: {why}")\n'
    )
    assert said(source) == {"has melted"}
